// A timer that is late: a fiber computes, and keeps the only worker.
#include <vigil/inspect.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

//! [summary]
[[gnu::noinline]] unsigned summarise() {
  unsigned sum = 1;
  const auto end = std::chrono::steady_clock::now() + 1s;  // stands for much data
  while (std::chrono::steady_clock::now() < end) {
    for (unsigned i = 0; i < 1'000'000; ++i)
      sum = sum * 31 + i;
  }
  return sum;
}

//! [summary]

int main() {
  vigil::inspect::install();
  //! [options]
  vigil::options options;
  options.workers = 1;
  options.stuck_limit = 200ms;
  //! [options]
  //! [slow]
  options.slow_fiber = 20ms;
  //! [slow]
  vigil::run(options, [] {
    const auto heartbeat = vigil::every(10ms, [] {});
    vigil::spawn({.name = "summary"}, summarise).join();
    vigil::sleep_for(20ms);
    //! [lateness]
    const auto late = vigil::stats().lateness;
    std::printf("%llu timers fired, the latest %llu ms late\n",
                static_cast<unsigned long long>(late.total()),
                static_cast<unsigned long long>(late.max_nanos / 1'000'000));
    //! [lateness]
  });
}
