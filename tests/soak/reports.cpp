// Reports: dumps, metrics and a trace while everything runs, each whole, or late: on a
// busy machine, or one that was stopped, the names of functions may not come in time.
#include "soak/world.hpp"

#include <vigil/blocking.hpp>
#include <vigil/debug.hpp>
#include <vigil/inspect.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

namespace vigil::soak {
namespace {

enum class format : std::uint8_t { text, json, metrics, trace };

// A trace is a row of packets, each after its field's tag and its length as a varint.
bool is_whole_trace(std::string_view bytes) {
  constexpr char packet_tag = 0x0a;
  if (bytes.empty()) return false;
  while (!bytes.empty()) {
    if (bytes.front() != packet_tag) return false;
    std::uint64_t length = 0;
    std::size_t i = 1;
    for (unsigned shift = 0;; shift += 7) {
      if (i == bytes.size() || shift > 56) return false;
      const auto byte = static_cast<unsigned char>(bytes[i++]);
      length |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    if (length > bytes.size() - i) return false;
    bytes.remove_prefix(i + length);
  }
  return true;
}

bool is_whole(format f, std::string_view text) {
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  switch (f) {
    case format::text:
      return has("fiber") && text.ends_with("\n");
    case format::json:
      return has("fiber_count") && text.ends_with("}\n");
    case format::metrics:
      return has("vigil_fiber") && text.ends_with("# EOF\n");
    default:
      return is_whole_trace(text);
  }
}

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
void write_report(world& w, report_ledger& l, format as, F write) {
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
    if (is_whole(as, got)) {
      ++l.written;
      if (as == format::json) l.last_json = clock::now();
    } else if (w.shortage_since(edges)) {
      ++l.refused;
    } else if (got.starts_with("{\"error\"")) {
      count_late(w, l);
    } else {
      l.fail("a report is not whole: " + std::string(got));
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
      write_report(w, l, format::text, [](std::FILE* f) { debug::dump(f); });
      break;
    case 1:
      write_report(w, l, format::text, [](std::FILE* f) { inspect::dump(f); });
      break;
    case 2:
      write_report(w, l, format::json, [](std::FILE* f) { inspect::dump_json(f); });
      break;
    case 3:
      write_report(w, l, format::metrics, [](std::FILE* f) {
        std::fputs(inspect::openmetrics().c_str(), f);
      });
      break;
    default:
      // In `blocking` on real time, as the guide says.
      write_report(w, l, format::trace, [&](std::FILE* f) {
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
