// Reports: dumps, metrics and a trace while everything runs, each whole, or late: on a
// busy machine, or one that was stopped, the names of functions may not come in time.
#include "soak/world.hpp"

#include <vigil/blocking.hpp>
#include <vigil/debug.hpp>
#include <vigil/inspect.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

namespace vigil::soak {
namespace {

constexpr std::string_view json_part = "fiber_count";

struct report_ledger : ledger {
  using ledger::ledger;
  opened asked{*this, "asked for"};
  closed written{*this, "written"};
  closed late{*this, "late"};
  closed refused{*this, "refused in a shortage"};
  time_point last_json = clock::now();  // the actor's: when one was whole
};

// Counts a late report in JSON. A text comes in time, without the names.
void count_late(const world& w, report_ledger& l) {
  ++l.late;
  // Names take real time, and in the year a report is asked for once in weeks.
  l.must(w.how.is_virtual || clock::now() - l.last_json < w.how.patience,
         "reports in JSON come no more");
}

// Collects the text of a report in memory: there may be no descriptor.
template <class F>
void write_report(world& w, report_ledger& l, std::string_view part, F write) {
  const std::uint64_t edges = w.shortages();
  ++l.asked;
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const out = ::open_memstream(&text, &size);
  try {
    if (out == nullptr) throw std::bad_alloc();
    write(out);
    std::fclose(out);
    const std::string_view got(text, size);
    const bool is_whole = !got.empty() && got.find(part) != std::string_view::npos &&
                          (part != json_part || got.ends_with("}\n"));
    if (is_whole) {
      ++l.written;
      if (part == json_part) l.last_json = clock::now();
    } else if (w.shortage_since(edges)) {
      ++l.refused;
    } else if (got.starts_with("{\"error\"")) {
      count_late(w, l);
    } else {
      l.fail("a report lacks \"" + std::string(part) + "\": " + std::string(got));
    }
    std::free(text);
  } catch (const std::exception& error) {
    if (out != nullptr) std::fclose(out);
    std::free(text);
    const auto* const e = dynamic_cast<const std::system_error*>(&error);
    if (e != nullptr && e->code() == std::errc::timed_out) return count_late(w, l);
    ++l.refused;
    if (!w.shortage_since(edges)) throw;
  }
}

void play_report(world& w, report_ledger& l, dice& d) {
  sleep_for(w.how.longest_pause * (w.how.is_virtual ? 1 : 20));
  // Frames and their names take real time.
  if (w.how.is_virtual && !d.one_in(30)) return;
  switch (d.below(5)) {
    case 0:
      write_report(w, l, "fiber", [](std::FILE* f) { debug::dump(f); });
      break;
    case 1:
      write_report(w, l, "fiber", [](std::FILE* f) { inspect::dump(f); });
      break;
    case 2:
      write_report(w, l, json_part, [](std::FILE* f) { inspect::dump_json(f); });
      break;
    case 3:
      write_report(
          w, l, "# EOF", [](std::FILE* f) { std::fputs(inspect::openmetrics().c_str(), f); });
      break;
    default:
      // In `blocking` on real time, as the guide says.
      write_report(w, l, "", [&](std::FILE* f) {
        const auto write = [f] { inspect::write_trace(f, 100ms); };
        if (w.how.is_virtual) {
          write();
        } else {
          blocking(write);
        }
      });
      break;
  }
}

}  // namespace

void cast_reports(world& w) {
  auto& l = *w.keep<report_ledger>("reports");
  w.cast("reports", 1, [&](dice& d) { play_report(w, l, d); });
}

}  // namespace vigil::soak
