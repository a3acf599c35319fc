// demo: vigil in ten seconds.
//
// Run it:     ./dev demo
// It prints:  six scenes: fibers that sleep, work that repeats, timers that are stopped,
//             100 000 sleepers, the dump, virtual time; then a table of the timer
//             service's work meanwhile.
#include "example.hpp"

#include <atomic>
#include <chrono>
#include <set>
#include <sstream>
#include <vector>

#include <unistd.h>

using namespace std::chrono_literals;

namespace {

vigil::clock::time_point scene_start;

void scene(const char* title) {
  const bool bold = isatty(STDOUT_FILENO) == 1;
  std::printf("\n%s%s%s\n", bold ? "\033[1m" : "", title, bold ? "\033[0m" : "");
  scene_start = vigil::clock::now();
}

// Prints one line, with the time since the scene began, rounded down.
void say(const std::string& text) {
  const auto passed = (vigil::clock::now() - scene_start) / 10ms;
  std::printf("  %5.2f s  %s\n", static_cast<double>(passed) / 100, text.c_str());
}

template <class F>
double nanos_of_each(int times, F&& f) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i)
    f(i);
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - start;
  return passed.count() / times;
}

void fibers_sleep() {
  scene("Fibers sleep. Started in one order, they wake in the order of their deadlines.");
  std::vector<vigil::fiber<>> fibers;
  for (const auto nap : {900ms, 300ms, 600ms}) {
    fibers.push_back(vigil::spawn([nap] {
      vigil::sleep_for(nap);
      say("slept for " + std::to_string(nap.count()) + " ms");
    }));
  }
  say("all three are started");
  for (auto& fiber : fibers)
    fiber.join();
}

void work_repeats() {
  scene("Work repeats every 250 ms. The third run takes 400 ms; the beat is kept.");
  //! [repeat]
  int runs = 0;
  vigil::scoped_timer beat = vigil::every(250ms, [&runs] {
    ++runs;
    say("run " + std::to_string(runs));
    if (runs == 3) vigil::sleep_for(400ms);
  });
  vigil::sleep_for(1600ms);
  beat->stop_and_wait();
  //! [repeat]
}

void timers_are_stopped() {
  scene("Timers are armed by the thousand, and stopped: 10 000 of them, all but 100.");
  std::atomic<int> fired = 0;
  std::vector<vigil::timer> timers(10'000);
  const double arm = nanos_of_each(10'000, [&](int i) {
    timers[static_cast<std::size_t>(i)] = vigil::after_func(800ms, [&fired] { ++fired; });
  });
  int stopped = 0;
  const double stop =
      nanos_of_each(9'900, [&](int i) { stopped += timers[static_cast<std::size_t>(i)].stop(); });
  std::printf("  %.0f ns to arm one, %.0f ns to stop one\n", arm, stop);
  vigil::sleep_for(1s);
  std::printf("  %d stopped, %d fired\n", stopped, fired.load());
}

std::int64_t many_sleep() {
  scene("A fiber is cheap. Many sleep for a second, all at once:");
  const std::uint64_t count = example::sleepers_possible(100'000);
  const std::int64_t before = example::memory_kib();
  for (std::uint64_t i = 0; i < count; ++i) {
    vigil::go([] { vigil::sleep_for(1s); });
  }
  // On a slow machine the first are awake again before the last has begun.
  while (vigil::stats().fibers_sleeping < count && vigil::stats().fibers_alive > count)
    vigil::sleep_for(10ms);
  const std::int64_t all = example::memory_kib();
  std::printf("  %s fibers are asleep, %.1f KiB each; threads in the process: %lld\n",
              example::grouped(count).c_str(),
              static_cast<double>(all - before) / static_cast<double>(count),
              static_cast<long long>(example::of_process("Threads")));
  while (vigil::stats().fibers_alive > 1)
    vigil::sleep_for(10ms);
  say("all are awake again and have ended");
  return all;
}

void waits_are_listed() {
  scene("Every fiber that waits says for what, since when, until when (try SIGQUIT):");
  const auto hourly = vigil::spawn({.name = "hourly report"}, [] { vigil::sleep_for(1h); });
  const auto nightly = vigil::spawn({.name = "nightly backup"}, [] { vigil::sleep_for(24h); });
  vigil::sleep_for(500ms);
  std::istringstream dump(example::dump_text());
  std::set<std::string> waiting;
  for (std::string line; std::getline(dump, line);) {
    if (line.find("ly ") != line.npos) waiting.insert(line.substr(0, line.find(" started at")));
  }
  for (const std::string& line : waiting)
    std::printf("  %s\n", line.c_str());
}

void a_week_passes() {
  scene("Tests run on virtual time. A week of one beat a minute:");
  int beats = 0;
  const auto start = std::chrono::steady_clock::now();
  vigil::testing::run_virtual([&] {
    const vigil::scoped_timer beat = vigil::every(1min, [&beats] { ++beats; });
    vigil::sleep_for(24h * 7);
  });
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("  %d beats in %.1f ms\n", beats, took.count());
}

void closing_table(const vigil::runtime_stats& s, std::int64_t peak_kib) {
  const auto row = [](const char* what, const std::string& value) {
    std::printf("  %-34s %12s\n", what, value.c_str());
  };
  const auto micros = [&s](double share) {
    return example::grouped(s.lateness.quantile_nanos(share) / 1000) + " us";
  };
  scene("What the timer service did:");
  row("timers armed", example::grouped(s.timers_armed));
  row("timers fired", example::grouped(s.timers_fired));
  row("timers stopped", example::grouped(s.timers_stopped));
  row("late by at most, half of them", micros(0.5));
  row("late by at most, 99 of 100", micros(0.99));
  row("times a worker went to sleep", example::grouped(s.kernel_waits));
  row("... and woke for nothing", example::grouped(s.wakes_needless));
  row("memory at the peak", example::grouped(static_cast<std::uint64_t>(peak_kib) / 1024) + " MiB");
  row("memory now",
      example::grouped(static_cast<std::uint64_t>(example::memory_kib()) / 1024) + " MiB");
}

}  // namespace

int main() {
  vigil::runtime_stats at_the_end;
  std::int64_t peak_kib = 0;
  const int status = example_main([&] {
    fibers_sleep();
    work_repeats();
    timers_are_stopped();
    peak_kib = many_sleep();
    waits_are_listed();
    at_the_end = vigil::stats();
  });
  a_week_passes();
  closing_table(at_the_end, peak_kib);
  return status;
}
