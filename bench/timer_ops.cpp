// Arm, stop, reset and fire, among 0, 1 000 and 1 000 000 other timers at random
// deadlines between one and two hours away.
//
// There is one worker, so these are the costs of the operation itself. There are three
// kinds of timer: one used again, 100 000 records in turn (each one a cache miss), and a
// fresh after_func object for each operation.
#include "harness.hpp"

#include <vigil/vigil.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>

namespace bench {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t records = 100'000;

// Durations between one and two hours, drawn beforehand.
class random_delays {
 public:
  random_delays() {
    std::mt19937_64 dice(42);
    std::uniform_int_distribution<nanos> hours(3600'000'000'000, 7200'000'000'000);
    for (auto& d : drawn_)
      d = std::chrono::nanoseconds(hours(dice));
  }

  std::chrono::nanoseconds next() noexcept { return drawn_[at_++ % drawn_.size()]; }

 private:
  std::array<std::chrono::nanoseconds, 8192> drawn_{};
  std::size_t at_ = 0;
};

// Pending timers that nobody touches.
class others {
 public:
  explicit others(std::size_t n) {
    std::mt19937_64 dice(7);
    std::uniform_int_distribution<nanos> hours(3600'000'000'000, 7200'000'000'000);
    timers_.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      timers_.push_back(vigil::after_func(std::chrono::nanoseconds(hours(dice)), [] {}));
    }
  }

  ~others() {
    for (vigil::timer& t : timers_)
      t.stop();
  }

  others(const others&) = delete;
  others& operator=(const others&) = delete;

 private:
  std::vector<vigil::timer> timers_;
};

// Returns CPU time, so that other programs on the machine count less. Caller: on the only
// worker.
template <class F>
double nanos_each(std::size_t n, F&& f) {
  const nanos start = cpu_time();
  for (std::size_t i = 0; i < n; ++i)
    f(i);
  return static_cast<double>(cpu_time() - start) / static_cast<double>(n);
}

std::vector<vigil::timer> idle_timers(std::size_t n) {
  std::vector<vigil::timer> timers;
  timers.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    timers.push_back(vigil::after_func(1h, [] {}));
    timers.back().stop();
  }
  return timers;
}

std::string count_name(std::size_t n) {
  return n == 0 ? "0" : n == 1000 ? "1 000" : "1 000 000";
}

// Measures one kind of operation among 0, 1 000 and 1 000 000 others, each in a runtime
// of its own, and the growth from the first to the last.
template <class F>
void among_others(report& out, const std::string& name, F&& measure) {
  double alone = 0;
  for (const std::size_t n : {std::size_t{0}, std::size_t{1000}, std::size_t{1'000'000}}) {
    const double value = vigil::run(with_workers(1), [&] {
      const others crowd(n);
      // Runs in a fiber of its own, like most code.
      return vigil::spawn([&] { return median_of(out.is_long() ? 9 : 5, measure); }).join();
    });
    if (n == 0) alone = value;
    out.add(name + ", " + count_name(n) + " others", value, "ns");
    if (n == 1'000'000) out.add(name + ", growth", value / alone, "x");
  }
}

}  // namespace

void arm_stop(report& out) {
  random_delays delays;
  among_others(out, "arm+stop, one timer used again", [&] {
    vigil::timer t = vigil::after_func(1h, [] {});
    t.stop();
    return nanos_each(500'000, [&](std::size_t) {
      t.reset(delays.next());
      t.stop();
    });
  });
  among_others(out, "arm+stop, 100 000 records in turn", [&] {
    auto timers = idle_timers(records);
    return nanos_each(2 * records, [&](std::size_t i) {
      vigil::timer& t = timers[i % records];
      t.reset(delays.next());
      t.stop();
    });
  });
  among_others(out, "arm+stop, 100 000 records, all armed first", [&] {
    auto timers = idle_timers(records);
    return nanos_each(records, [&](std::size_t i) { timers[i].reset(delays.next()); }) +
           nanos_each(records, [&](std::size_t i) { timers[i].stop(); });
  });
  among_others(out, "arm+stop, fresh after_func objects", [&] {
    return nanos_each(200'000,
                      [&](std::size_t) { vigil::after_func(delays.next(), [] {}).stop(); });
  });

  // From two workers at once: does anything in the service make them wait for
  // each other?
  const double both = vigil::run(with_workers(2), [&] {
    return median_of(5, [&] {
      std::atomic<int> arrived{0};
      const auto work = [&arrived] {
        random_delays own;
        vigil::timer t = vigil::after_func(1h, [] {});
        arrived.fetch_add(1);
        // Waits until the other one is there, on the other worker.
        while (arrived.load() < 2)
          vigil::this_fiber::yield();
        constexpr std::size_t rounds = 500'000;
        const nanos start = thread_cpu_time();
        for (std::size_t i = 0; i < rounds; ++i) {
          t.reset(own.next());
          t.stop();
        }
        return static_cast<double>(thread_cpu_time() - start) / rounds;
      };
      auto a = vigil::spawn(work);
      auto b = vigil::spawn(work);
      const double first = a.join();
      return (first + b.join()) / 2;
    });
  });
  out.add("arm+stop, one timer used again, from 2 workers, each", both, "ns");
}

void reset(report& out) {
  random_delays delays;
  among_others(out, "reset, one timer used again", [&] {
    vigil::timer t = vigil::after_func(1h, [] {});
    const double each = nanos_each(500'000, [&](std::size_t) { t.reset(delays.next()); });
    t.stop();
    return each;
  });
  among_others(out, "reset, 100 000 records in turn", [&] {
    auto timers = idle_timers(records);
    for (vigil::timer& t : timers)
      t.reset(delays.next());
    const double each =
        nanos_each(2 * records, [&](std::size_t i) { timers[i % records].reset(delays.next()); });
    for (vigil::timer& t : timers)
      t.stop();
    return each;
  });
}

void fire(report& out) {
  static std::atomic<std::size_t> fired{0};
  const auto run_until_fired = [](std::size_t n) {
    while (fired.load(std::memory_order_relaxed) < n) {  // ordering: one worker
      vigil::this_fiber::yield();
    }
  };
  const auto spin_until = [](nanos t) {
    while (now() < t) {
    }
  };
  const auto callback = [] {
    fired.fetch_add(1, std::memory_order_relaxed);
  };  // ordering: as above

  among_others(out, "fire, one timer used again", [&] {
    constexpr std::size_t rounds = 10'000;
    vigil::timer t = vigil::after_func(1h, callback);
    nanos sum = 0;
    for (std::size_t i = 0; i < rounds; ++i) {
      fired = 0;
      t.reset(1us);
      spin_until(t.deadline().time_since_epoch().count());
      const nanos start = now();
      run_until_fired(1);
      sum += now() - start;
    }
    return static_cast<double>(sum) / static_cast<double>(rounds);
  });

  const auto fire_all = [&](auto&& arm) {
    fired = 0;
    const auto t = vigil::clock::now() + 200ms;
    arm(t);
    spin_until(t.time_since_epoch().count());
    const nanos start = cpu_time();
    run_until_fired(records);
    return static_cast<double>(cpu_time() - start) / static_cast<double>(records);
  };
  std::vector<vigil::timer> timers;
  among_others(out, "fire, 100 000 records due together", [&] {
    timers.clear();
    for (std::size_t i = 0; i < records; ++i) {
      timers.push_back(vigil::after_func(1h, callback));
      timers.back().stop();
    }
    return fire_all([&](auto t) {
      for (vigil::timer& each : timers)
        each.reset(t);
    });
  });
  timers.clear();
  among_others(out, "fire, 100 000 fresh after_func objects due together", [&] {
    return fire_all([&](auto t) {
      for (std::size_t i = 0; i < records; ++i)
        vigil::after_func(t - vigil::clock::now(), callback);
    });
  });
}

// Fires a million timers that are due at random instants of one second.
void burst(report& out) {
  constexpr std::size_t n = 1'000'000;
  vigil::run(with_workers(0), [&] {
    // The callbacks use these as well: the shutdown may find some not started.
    static std::atomic<std::size_t> fired{0};
    static std::atomic<std::size_t> early{0};
    fired = 0;
    early = 0;
    std::mt19937_64 dice(3);
    std::uniform_int_distribution<nanos> within(0, 999'999'999);
    const nanos start_arming = cpu_time();
    const auto first = vigil::clock::now() + 2s;
    for (std::size_t i = 0; i < n; ++i) {
      const auto t = first + std::chrono::nanoseconds(within(dice));
      vigil::after_func(t - vigil::clock::now(), [t] {
        if (vigil::clock::now() < t) early.fetch_add(1);
        fired.fetch_add(1, std::memory_order_relaxed);  // ordering: a count
      });
    }
    const nanos armed = cpu_time();
    out.add("arm a million after_func, CPU each",
            static_cast<double>(armed - start_arming) / static_cast<double>(n),
            "ns");

    vigil::sleep_until(first - 10ms);
    const nanos cpu_before = cpu_time();
    const auto before = vigil::stats();
    vigil::sleep_until(first + 1s);
    while (fired.load() < n)
      vigil::sleep_for(1ms);
    const nanos last = now() - (first + 1s).time_since_epoch().count();
    const nanos cpu = cpu_time() - cpu_before;
    const auto after = vigil::stats();
    out.add("callback within the second, CPU each",
            static_cast<double>(cpu) / static_cast<double>(n),
            "ns",
            early.load() == 0 ? "none early" : "SOME EARLY");
    out.add("all done after the last deadline (looked at each ms)",
            static_cast<double>(last) / 1e6,
            "ms");
    vigil::delay_histogram late = after.lateness;
    for (std::size_t i = 0; i < late.buckets; ++i)
      late.count[i] -= before.lateness.count[i];
    out.add("lateness of firing, p50, at most",
            static_cast<double>(late.quantile_nanos(0.5)) / 1e3,
            "us");
    out.add("lateness of firing, p99, at most",
            static_cast<double>(late.quantile_nanos(0.99)) / 1e3,
            "us");
    out.add("kernel waits in that second",
            static_cast<double>(after.kernel_waits - before.kernel_waits),
            "");
    out.add("wake-up calls in that second",
            static_cast<double>(after.wake_calls - before.wake_calls),
            "");
  });
}

}  // namespace bench
