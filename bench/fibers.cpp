// Yield, spawn and join, and fibers that sleep by the million.
#include "harness.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <string>

namespace bench {
namespace {

using namespace std::chrono_literals;

enum class arithmetic { none, in_all, in_half };

// Makes two fibers on one worker yield to each other. An inexact division leaves a sticky
// flag in the floating-point control word, which makes a careless switch slow.
double nanos_each_yield(arithmetic what) {
  return vigil::run(with_workers(1), [&] {
    return median_of(7, [&] {
      constexpr std::size_t trips = 500'000;
      const auto plain = [] {
        for (std::size_t i = 0; i < trips; ++i)
          vigil::this_fiber::yield();
      };
      const auto inexact = [] {
        double x = 1.0;
        for (std::size_t i = 0; i < trips; ++i) {
          x = x / 3.0 + 1.0;
          keep(x);
          vigil::this_fiber::yield();
        }
      };
      const nanos start = now();
      auto a = what == arithmetic::none ? vigil::spawn(plain) : vigil::spawn(inexact);
      auto b = what == arithmetic::in_all ? vigil::spawn(inexact) : vigil::spawn(plain);
      a.join();
      b.join();
      return static_cast<double>(now() - start) / (2.0 * trips);
    });
  });
}

void sleeping_fibers(report& out, std::size_t n, const std::string& name) {
  vigil::run(with_workers(0), [&] {
    static std::atomic<std::size_t> done{0};
    static std::atomic<std::size_t> early{0};
    done = 0;
    early = 0;
    const std::size_t memory_before = memory_held();
    const nanos cpu_start = cpu_time();
    std::mt19937_64 dice(5);
    std::uniform_int_distribution<nanos> within(0, 999'999'999);
    // Late enough that all of them are asleep at once.
    const auto first =
        vigil::clock::now() + (out.is_long() ? 20s : 500ms) + std::chrono::microseconds(6 * n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto t = first + std::chrono::nanoseconds(within(dice));
      vigil::go([t] {
        vigil::sleep_until(t);
        if (vigil::clock::now() < t) early.fetch_add(1);
        done.fetch_add(1, std::memory_order_relaxed);  // ordering: a count
      });
    }
    while (vigil::stats().fibers_sleeping < n && vigil::clock::now() < first) {
      vigil::sleep_for(1ms);
    }
    const bool together = vigil::stats().fibers_sleeping >= n;
    const nanos cpu_asleep = cpu_time();
    const std::size_t memory_asleep = memory_held();
    vigil::sleep_until(first - 10ms);
    const nanos cpu_waking = cpu_time();
    while (done.load() < n)
      vigil::sleep_for(5ms);
    const nanos cpu_done = cpu_time();
    vigil::sleep_for(50ms);
    const std::size_t memory_after = memory_held();

    const auto each = [n](auto amount) {
      return static_cast<double>(amount) / static_cast<double>(n);
    };
    out.add(name + ": start and go to sleep, CPU each", each(cpu_asleep - cpu_start), "ns");
    out.add(name + ": wake within one second and end, CPU each",
            each(cpu_done - cpu_waking),
            "ns",
            early.load() == 0 ? "none early" : "SOME EARLY");
    out.add(name + ": asleep, resident and page tables, each",
            each(memory_asleep - memory_before),
            "bytes",
            together ? "all asleep at once" : "NOT ALL ASLEEP AT ONCE");
    const auto kept = static_cast<double>(memory_after) - static_cast<double>(memory_before);
    out.add(name + ": still held when they have ended",
            100.0 * kept / static_cast<double>(memory_asleep - memory_before),
            "%");
  });
}

}  // namespace

void yield(report& out) {
  out.add("yield to another fiber", nanos_each_yield(arithmetic::none), "ns");
  out.add("yield, floating point in both fibers", nanos_each_yield(arithmetic::in_all), "ns");
  out.add("yield, floating point in one of the two", nanos_each_yield(arithmetic::in_half), "ns");
}

void spawn_join(report& out) {
  const auto one_by_one = [] {
    constexpr std::size_t n = 200'000;
    const nanos start = now();
    for (std::size_t i = 0; i < n; ++i)
      vigil::spawn([] {}).join();
    return static_cast<double>(now() - start) / n;
  };
  const auto hundred = [] {
    constexpr std::size_t n = 2'000;
    std::vector<vigil::fiber<>> fibers(100);
    const nanos start = now();
    for (std::size_t i = 0; i < n; ++i) {
      for (auto& f : fibers)
        f = vigil::spawn([] {});
      for (auto& f : fibers)
        f.join();
    }
    return static_cast<double>(now() - start) / (n * 100.0);
  };
  for (const std::size_t workers : {std::size_t{1}, std::size_t{2}}) {
    const std::string where = workers == 1 ? ", 1 worker" : ", 2 workers";
    vigil::run(with_workers(workers), [&] {
      out.add("spawn+join, one at a time" + where, median_of(5, one_by_one), "ns");
      out.add("spawn+join, a hundred at a time" + where, median_of(5, hundred), "ns");
    });
  }
}

void sleepers(report& out) {
  sleeping_fibers(out, 100'000, "100 000");
  sleeping_fibers(out, 1'000'000, "1 000 000");
}

}  // namespace bench
