// soak: everything at once, for hours, under bad weather, with a ledger for each promise.
//
// usage: soak [--hours=X | --seconds=X | --year[=DAYS]] [--workers=N] [--seed=N]
//             [--calm | --gentle] [--patience=SECONDS]
//
// --year runs on virtual time, without sockets and weather; 365 days unless given.
// --patience is how long it waits for things that must happen at some time, such as
// the end of each actor's round: 15 minutes, in the year 30 days.
// Exit status: 0 if every ledger is balanced and nothing grows, 1 otherwise, 2 for bad
// options, 77 where nothing tells how many descriptors and threads there are.
// docs/internals/soak.md tells how to read what it prints.
#include "core/machine/stack.hpp"
#include "soak/monitor.hpp"
#include "soak/weather.hpp"
#include "soak/world.hpp"
#include "support/thread_count.hpp"

#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <boost/asio/system_executor.hpp>

namespace vigil::soak {
namespace {

struct command {
  settings how;
  bool has_weather = true;
  bool is_gentle = false;
  std::optional<nanoseconds> patience;
};

double number(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double x = std::strtod(copy.c_str(), &end);
  if (copy.empty() || *end != '\0' || !(x > 0)) throw std::invalid_argument("bad number " + copy);
  return x;
}

std::uint64_t whole(std::string_view text) {
  const double x = number(text);
  if (x != std::floor(x) || x > 1e9) {
    throw std::invalid_argument("not a whole number up to a billion: " + std::string(text));
  }
  return static_cast<std::uint64_t>(x);
}

nanoseconds times(double x, nanoseconds unit) {
  const double length = x * static_cast<double>(unit.count());
  if (length > 9e18) throw std::invalid_argument("a time beyond 285 years");
  return nanoseconds(static_cast<std::int64_t>(length));
}

command parse(int argc, char** argv) {
  command c;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    const auto value_of = [&](std::string_view key) -> std::optional<std::string_view> {
      if (!text.starts_with(key)) return {};
      return text.substr(key.size());
    };
    if (const auto hours = value_of("--hours=")) {
      c.how.length = times(number(*hours), 1h);
    } else if (const auto seconds = value_of("--seconds=")) {
      c.how.length = times(number(*seconds), 1s);
    } else if (const auto days = value_of("--year=")) {
      c.how.is_virtual = true;
      c.how.length = times(number(*days), 24h);
    } else if (text == "--year") {
      c.how.is_virtual = true;
      c.how.length = 365 * 24h;
    } else if (const auto workers = value_of("--workers=")) {
      c.how.workers = whole(*workers);
    } else if (const auto seed = value_of("--seed=")) {
      c.how.seed = whole(*seed);
    } else if (const auto patience = value_of("--patience=")) {
      c.patience = times(number(*patience), 1s);
    } else if (text == "--calm") {
      c.has_weather = false;
    } else if (text == "--gentle") {
      c.is_gentle = true;
    } else {
      throw std::invalid_argument("unknown option " + std::string(text));
    }
  }
  if (c.how.is_virtual) {
    c.has_weather = false;
    c.how.between_rests = 24h;
    c.how.longest = 4h;
    c.how.longest_pause = 8h;
    c.how.patience = 30 * 24h;
    c.how.workers = 1;
    c.how.judges_slopes = c.how.length >= 30 * 24h;
  } else {
    // The shortest run whose slopes can be told from their errors.
    c.how.judges_slopes = c.how.length >= 5min;
    if (c.how.length >= 5min) c.how.between_rests = 10s;
  }
  if (c.patience) c.how.patience = *c.patience;
  return c;
}

options runtime_options(world& w) {
  options o;
  o.workers = w.how.workers;
  o.recorder_events = 4'096;
  o.stop_limit = w.how.is_virtual ? nanoseconds(1h) : w.how.patience;
  o.on_unhandled = [&w](const std::exception_ptr& e) {
    if (w.excuses(e)) return;
    try {
      std::rethrow_exception(e);
    } catch (const std::exception& x) {
      w.ledgers.fail("unhandled exceptions", x.what());
    }
  };
  return o;
}

void cast_all(world& w) {
  cast_timers(w);
  cast_tickers(w);
  cast_channels(w);
  cast_contexts(w);
  cast_groups(w);
  cast_tasks(w);
  cast_idle(w);
  cast_blocking(w);
  cast_clocks(w);
  cast_http(w);
  cast_tls(w);
  cast_reports(w);
}

// Fails for everything that the runtime has left behind.
void check_nothing_left(world& w, const holdings& before, std::size_t stacks) {
  const auto threads =
      testing_support::threads_once_at_most(static_cast<std::size_t>(before.threads));
  const holdings after = held_now();
  const auto expect = [&](const char* what, std::size_t is, std::size_t was) {
    if (is > was) {
      w.ledgers.fail(
          "end",
          std::to_string(is) + " " + what + " after the run, " + std::to_string(was) + " before");
    }
  };
  expect("threads", threads, static_cast<std::size_t>(before.threads));
  expect("descriptors",
         static_cast<std::size_t>(after.descriptors),
         static_cast<std::size_t>(before.descriptors));
  expect("stacks in use", detail::read_stack_stats().in_use, stacks);
  const std::string open = w.ledgers.open_entries();
  if (!open.empty()) w.ledgers.fail("end", open);
}

// Prints what there was, and returns the exit status.
int conclude(const world& w, const weather* over, std::size_t rests, const std::string& slopes) {
  std::printf("ledgers, opened = closed (notes):\n%s", w.ledgers.table().c_str());
  if (over != nullptr) std::printf("weather: %s\n", over->text().c_str());
  if (!slopes.empty()) {
    std::printf("slopes, least squares and one standard error:\n%s", slopes.c_str());
  }
  const bool failed = w.ledgers.has_failed();
  std::printf("soak: %s (seed %llu, %zu rests)\n",
              failed ? "FAILED" : "OK",
              static_cast<unsigned long long>(w.how.seed),
              rests);
  std::fflush(nullptr);
  return failed ? 1 : 0;
}

int soak(const command& c) {
  const holdings known = held_now();
  if (known.descriptors < 0 || known.threads < 0 || known.resident < 0) {
    std::printf("skipped: /proc does not tell what this process holds\n");
    return 77;
  }
  std::optional<weather> over;
  if (c.has_weather) over.emplace(c.how.seed, c.is_gentle);
  inspect::install();
  // Asio's own threads, on which streams in memory have a context, stay until exit.
  if (c.how.is_virtual) static_cast<void>(boost::asio::system_executor().context());
  const holdings before = held_now();
  const std::size_t stacks = detail::read_stack_stats().in_use;
  world w(c.how, over ? &*over : nullptr);
  std::string slopes;
  std::size_t rests = 0;
  const auto main = [&] {
    monitor m(w);
    cast_all(w);
    if (over) over->begin();
    m.watch();
    if (over && !over->end()) w.ledgers.fail("weather", "the process that makes it has died");
    rests = m.rests();
    // Where something has failed, nothing is sure to end.
    if (w.ledgers.has_failed()) std::_Exit(conclude(w, over ? &*over : nullptr, rests, ""));
    slopes = m.slopes();
  };
  if (c.how.is_virtual) {
    testing::run_virtual({.seed = c.how.seed, .runtime = runtime_options(w)}, main);
  } else {
    vigil::run(runtime_options(w), main);
  }
  check_nothing_left(w, before, stacks);
  return conclude(w, over ? &*over : nullptr, rests, slopes);
}

}  // namespace
}  // namespace vigil::soak

int main(int argc, char** argv) {
  vigil::soak::command c;
  try {
    c = vigil::soak::parse(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "soak: %s\n", e.what());
    return 2;
  }
  return vigil::soak::soak(c);
}
