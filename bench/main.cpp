// vigil_bench [filter] [--long] [--json]: the table of what things cost.
//
// The filter is part of a group's name. Without one, every group except those that take
// minutes runs with small counts, about a minute in all; --long runs everything with the
// counts of the documents, half an hour: io-kept has two idle times of ten minutes.
#include "harness.hpp"

#include <cstdio>
#include <cstring>
#include <string>

namespace {

struct group {
  const char* name;
  const char* title;
  void (*run)(bench::report& out);
  bool only_if_asked;
};

constexpr group groups[] = {
    {"arm-stop", "arm and stop a timer", &bench::arm_stop, false},
    {"reset", "reset a pending timer", &bench::reset, false},
    {"fire", "fire: from due to the callback's end, one worker", &bench::fire, false},
    {"burst", "1 000 000 callbacks within one second", &bench::burst, false},
    {"timeouts", "idle timeouts: touch, and libev's four ways", &bench::timeouts, false},
    {"yield", "yield", &bench::yield, false},
    {"spawn", "spawn and join", &bench::spawn_join, false},
    {"select-ready", "receive and select, a value is ready", &bench::select_ready, false},
    {"round-trip", "a question and its answer between two fibers", &bench::round_trips, false},
    {"locks", "locks that nobody else wants", &bench::locks, false},
    {"guards", "the guard below a stack, by its size", &bench::guards, false},
    {"recorder", "the flight recorder, with it and without", &bench::recorder, false},
    {"kernel", "what a sleep and a callback ask of the kernel", &bench::kernel_calls, false},
    {"guest", "a guest in a host's loop, beside a bare timerfd", &bench::guest, false},
    {"overshoot-idle", "overshoot of a 1 ms sleep, idle", &bench::overshoot_idle, false},
    {"overshoot-busy",
     "overshoot of a 1 ms sleep, every worker busy",
     &bench::overshoot_busy,
     false},
    {"cancel", "contexts: one, and one with 100 000 fibers", &bench::cancel, false},
    {"sleepers", "sleeping fibers", &bench::sleepers, false},
    {"again", "bursts of fibers that come again", &bench::bursts, true},
    {"virtual", "virtual time: a simulated week of 1 000 fibers", &bench::virtual_time, false},
#ifdef VIGIL_BENCH_IO
    {"io-overshoot",
     "overshoot inside the io_context, beside the futex",
     &bench::io_overshoot,
     false},
    {"io-kernel", "what I/O asks of the kernel", &bench::io_kernel, true},
    {"io-round-trip", "one byte there and back over a socket pair", &bench::io_round_trip, false},
    {"io-memory", "fibers that wait to read", &bench::io_memory, false},
    {"io-kept", "a server's idle connections, with and without a fiber", &bench::io_kept, false},
    {"p7-io",
     "bytes and deadlines beside a computation, 2 workers",
     &bench::beside_computation,
     true},
#endif
#ifdef VIGIL_BENCH_INSPECT
    {"inspect", "dumps with frames", &bench::inspect, false},
#endif
#ifdef VIGIL_BENCH_INSPECT_PAGE
    {"live-page", "answers of the live page", &bench::inspect_page, false},
    {"page-turns",
     "the live page's fibers: their longest turns, 100 000 fibers",
     &bench::page_turns,
     false},
#endif
    {"p7", "timers beside a long computation, 2 workers", &bench::long_computation, true},
    {"at-once", "a sleep beside calls that are served at once", &bench::served_at_once, true},
    {"p7-main", "main's sleep beside a computation", &bench::main_beside_computation, true},
    {"p13-main", "a value there and back between main and a fiber", &bench::talk_with_main, true},
};

int usage(std::FILE* to) {
  std::fprintf(to, "usage: vigil_bench [filter] [--long] [--json]\n\ngroups:\n");
  for (const group& g : groups) {
    std::fprintf(
        to, "  %-16s %s%s\n", g.name, g.title, g.only_if_asked ? " (if named, or --long)" : "");
  }
  return to == stdout ? 0 : 2;
}

}  // namespace

int main(int count, char** arguments) {
  std::string filter;
  bool json = false;
  bool long_run = false;
  for (int i = 1; i < count; ++i) {
    const std::string a = arguments[i];
    if (a == "--json") {
      json = true;
    } else if (a == "--long") {
      long_run = true;
#ifdef VIGIL_BENCH_IO
    } else if (a == "--traced") {  // by itself, under strace
      return bench::traced({arguments + i + 1, arguments + count});
#endif
    } else if (a == "--help") {
      return usage(stdout);
    } else if (a[0] == '-' || !filter.empty()) {
      return usage(stderr);
    } else {
      filter = a;
    }
  }

  bench::report out(json, long_run, !filter.empty());
  bool any = false;
  for (const group& g : groups) {
    if (filter.empty() ? g.only_if_asked && !long_run
                       : std::strstr(g.name, filter.c_str()) == nullptr)
      continue;
    any = true;
    out.begin(g.title);
    g.run(out);
  }
  if (!any) return usage(stderr);
  out.end();
}
