// The price of the flight recorder: the same work with it and without it, in turns.
#include "core/base/clock_source.hpp"
#include "core/base/ticks.hpp"
#include "core/sched/record/event_log.hpp"
#include "harness.hpp"
#include "recorded_work.hpp"

#include <vigil/vigil.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace bench {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t usual_events = 16 * 1024;

// Nanoseconds of CPU time of the process for each of n rounds.
template <class F>
double cpu_of(int n, F f) {
  const auto now = [] {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
  };
  const double begin = now();
  f(n);
  return (now() - begin) / n;
}

void sleeps(int n) {
  std::vector<vigil::fiber<>> all;
  constexpr int fibers = 100;
  for (int i = 0; i < fibers; ++i) {
    all.push_back(vigil::spawn([rounds = n / fibers] {
      for (int k = 0; k < rounds; ++k)
        vigil::sleep_for(1ms);
    }));
  }
  for (auto& f : all)
    f.join();
}

#ifdef VIGIL_BENCH_IO
void sockets(int n) {
  socket_round_trips(static_cast<std::size_t>(n));
}
#endif

struct work {
  const char* name;
  void (*f)(int);
  int rounds;
  double events;  // of a round
};

double once(const work& w, std::size_t workers, std::size_t events) {
  vigil::options o;
  o.workers = workers;
  o.recorder_events = events;
  double result = 0;
  vigil::run(o, [&] {
    w.f(w.rounds / 10);  // warm
    result = cpu_of(w.rounds, w.f);
  });
  return result;
}

// The parts of an event's price: the clock alone, and an event without a look at it.
double clocks(int n) {
  return cpu_of(n, [](int k) {
    for (int i = 0; i < k; ++i)
      asm volatile("" ::"r"(vigil::detail::ticks()));  // else it is left out
  });
}

double events(int n, bool with_clock) {
  vigil::detail::clock_source clock;
  vigil::detail::event_log log(usual_events, clock);
  log.write(vigil::detail::event_kind::steal);
  return cpu_of(n, [&log, with_clock](int k) {
    using enum vigil::detail::event_kind;
    for (int i = 0; i < k; ++i)
      with_clock ? log.write(steal, 1) : log.write_too(steal, 1);
  });
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

}  // namespace

void recorder(report& out) {
  const int rounds = out.is_long() ? 15 : 5;
  constexpr int many = 1'000'000;
  std::vector<double> parts[3];
  for (int i = 0; i < rounds; ++i) {
    parts[0].push_back(clocks(many));
    parts[1].push_back(events(many, false));
    parts[2].push_back(events(many, true));
  }
  out.add("the clock of events alone", median(parts[0]), "ns");
  out.add("an event without a look at it", median(parts[1]), "ns");
  out.add("an event", median(parts[2]), "ns");
  const work all[] = {
      {"yield", [](int n) { yields(n / 2); }, 2'000'000, 1},
      {"question and answer", &questions, 500'000, 4},
      {"start and join of a fiber", &starts, 300'000, 6},
      {"arm and stop of a timer", &timers, 1'000'000, 2},
      {"sleep of one of 100", &sleeps, 50'000, 4},
      {"region", &regions, 5'000'000, 2},
#ifdef VIGIL_BENCH_IO
      {"one byte there and back over a socket pair", &sockets, 50'000, 6},
#endif
  };
  for (const std::size_t workers : {std::size_t{1}, std::size_t{2}}) {
    for (const work& w : all) {
      std::vector<double> without;
      std::vector<double> with;
      std::vector<double> again;
      for (int i = 0; i < rounds; ++i) {
        without.push_back(once(w, workers, 0));
        with.push_back(once(w, workers, usual_events));
        again.push_back(once(w, workers, 0));
      }
      const double off = median(without);
      const double on = median(with);
      const std::string name = std::string(w.name) + ", " + std::to_string(workers) +
                               (workers == 1 ? " worker" : " workers");
      out.compare(name,
                  on,
                  "ns",
                  off,
                  "without; " + std::to_string((on - off) / w.events) + " ns an event; A/A " +
                      std::to_string(median(again) / off));
    }
  }
}

}  // namespace bench
