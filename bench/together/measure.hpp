// The clocks of `./dev bench together` and its peers, and the line of figures that run.py
// reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace together {

using nanos = std::int64_t;

inline nanos read_clock(clockid_t which) {
  timespec t{};
  clock_gettime(which, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

// How long a thread has been ready without a processor. `task`: its folder in /proc.
inline nanos delay_of(const std::filesystem::path& task) {
  std::ifstream file(task / "schedstat");
  nanos ran = 0;
  nanos waited = 0;
  return file >> ran >> waited ? waited : 0;
}

inline std::atomic<nanos> delay_of_ended{0};

// Called by a thread that ends before the figures are written.
inline void thread_ends() {
  delay_of_ended += delay_of("/proc/thread-self");
}

// The sum of all threads of the process.
inline nanos run_delay() {
  nanos all = delay_of_ended;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    all += delay_of(task.path());
  return all;
}

// Runs f() and writes the figures of one operation. wake_calls() returns the number of
// system calls that have woken a thread.
template <class F, class Wakes>
void measure(std::size_t operations, F&& f, Wakes wake_calls) {
  const auto wakes = wake_calls();
  const nanos delay = run_delay();
  const nanos cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
  const nanos begun = read_clock(CLOCK_MONOTONIC);
  f();
  const nanos elapsed = read_clock(CLOCK_MONOTONIC) - begun;
  const nanos used = read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  const auto woken = wake_calls() - wakes;
  const auto n = static_cast<double>(operations);
  std::printf("cpu=%.1f elapsed=%.1f wakes=%.3f delay=%.1f\n",
              static_cast<double>(used) / n,
              static_cast<double>(elapsed) / n,
              static_cast<double>(woken) / n,
              static_cast<double>(run_delay() - delay) / n);
}

template <class F>
void measure(std::size_t operations, F&& f) {
  measure(operations, f, [] { return 0UL; });
}

}  // namespace together
