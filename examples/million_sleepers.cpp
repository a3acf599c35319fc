// million_sleepers: 1 000 000 fibers asleep at once, 20 s each.
//
// Run it:     build/release/examples/million_sleepers [COUNT [SECONDS]]
// It prints:  how many sleep at the peak, the memory that each one takes, how many woke
//             too early (the exit status is 1 if any did), how late the late ones were,
//             and how much memory is still held after they have ended. A progress line
//             goes to standard error.
//
// On a machine so busy that it takes longer to start them than each one sleeps, the first
// have ended before the last begins, and the peak is lower than their number.
// On a machine that cannot hold so many, fewer sleep, and it says so: see
// sleepers_possible().
#include "example.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  const std::uint64_t count =
      example::sleepers_possible(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000);
  const std::chrono::seconds nap{argc > 2 ? std::atoi(argv[2]) : 20};

  vigil::options settings;
  settings.workers = 2;
  return example_main(settings, [count, nap] {
    const std::int64_t before = example::memory_kib();
    const auto start = vigil::clock::now();
    std::printf("%s fibers sleep for %lld s each\n",
                example::grouped(count).c_str(),
                static_cast<long long>(nap.count()));

    //! [sleepers]
    std::atomic<std::uint64_t> early = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      vigil::go([&early, nap] {
        const auto asleep = vigil::clock::now();
        vigil::sleep_for(nap);
        if (vigil::clock::now() - asleep < nap) ++early;
      });
    }
    //! [sleepers]

    // Watches until the last one has ended; the peak is the first look that finds the
    // most of them asleep. Not zero even if no look finds one: both are divisors.
    std::uint64_t peak = 1;
    std::int64_t at_peak = 1;
    for (vigil::runtime_stats now = vigil::stats(); now.fibers_alive > 1; now = vigil::stats()) {
      if (now.fibers_sleeping > peak) {
        peak = now.fibers_sleeping;
        at_peak = std::max<std::int64_t>(1, example::memory_kib() - before);
      }
      std::fprintf(stderr,
                   "\r%10.1f s %14s asleep ",
                   std::chrono::duration<double>(vigil::clock::now() - start).count(),
                   example::grouped(now.fibers_sleeping).c_str());
      vigil::sleep_for(100ms);
    }
    std::fputs("\n", stderr);

    const auto held = std::max<std::int64_t>(0, example::memory_kib() - before);
    const auto late = vigil::stats().lateness;
    std::printf("asleep at once      %s\n", example::grouped(peak).c_str());
    std::printf("memory of each      %.2f KiB, page tables included\n",
                static_cast<double>(at_peak) / static_cast<double>(peak));
    std::printf("woke early          %s\n", example::grouped(early).c_str());
    std::printf("fired late by       %.3f ms at most, half of them less than %.3f ms\n",
                static_cast<double>(late.max_nanos) / 1e6,
                static_cast<double>(late.quantile_nanos(0.5)) / 1e6);
    std::printf("held after the end  %.1f %% of the peak\n",
                100.0 * static_cast<double>(held) / static_cast<double>(at_peak));
    return early == 0 ? 0 : 1;
  });
}
