// Lateness: the overshoot of a sleep beside a bare futex wait in the same run, idle and
// with every worker busy; and timers beside a long computation.
#include "core/timer/timer_service.hpp"
#include "harness.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace bench {
namespace {

using namespace std::chrono_literals;

// A plain thread that makes one bare sleep whenever it is asked to. The caller
// blocks meanwhile, so the two kinds of sleep alternate sample by sample.
class bare_thread {
 public:
  bare_thread() : thread_([this] { serve(); }) {}

  ~bare_thread() {
    set(quit);
    thread_.join();
  }

  nanos sleep_once() {
    set(asked);
    word_.wait(asked);
    return late_;
  }

 private:
  static constexpr int idle = 0;
  static constexpr int asked = 1;
  static constexpr int quit = 2;

  void set(int what) {
    word_.store(what);
    word_.notify_all();
  }

  void serve() {
    exact_sleeps();
    for (;;) {
      word_.wait(idle);
      if (word_.load() == quit) return;
      late_ = bare_sleep_until(now() + millisecond);
      set(idle);
    }
  }

  std::atomic<int> word_{idle};
  nanos late_ = 0;
  std::thread thread_;
};

void compare_quantiles(report& out,
                       const std::string& name,
                       const std::vector<nanos>& ours,
                       const std::vector<nanos>& bare) {
  for (const auto& [label, q] : {std::pair{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}}) {
    out.compare(name + ", " + label, quantile(ours, q) / 1e3, "us", quantile(bare, q) / 1e3);
  }
}

// --- busy

struct busy_run {
  double firing_p99;
  double running_p99;
  double bare_p99;
};

// Records when it fires, on the timer fiber itself.
struct firing {
  std::vector<nanos> late;
  std::atomic<bool> done{false};

  static void fired(void* argument,
                    vigil::detail::nanos when,
                    vigil::detail::fire_again*) noexcept {
    auto& self = *static_cast<firing*>(argument);
    self.late.push_back(now() - when);  // there is room
    self.done = true;
  }
};

// Runs `crowd` fibers for each worker, each of which yields every 10 us; one more fiber
// sleeps 1 ms again and again.
busy_run with_crowd(std::size_t crowd, std::size_t samples) {
  using vigil::detail::timer_service;
  std::atomic<bool> over{false};
  std::vector<nanos> bare;
  std::thread reference([&] {
    exact_sleeps();
    while (!over.load())
      bare.push_back(bare_sleep_until(now() + millisecond));
  });
  std::vector<nanos> running;
  firing fire;
  vigil::run(with_workers(0), [&] {
    std::vector<vigil::fiber<>> busy;
    for (std::size_t i = 0; i < crowd * processors(); ++i) {
      busy.push_back(vigil::spawn([&over] {
        while (!over.load()) {
          const nanos until = now() + 10'000;
          while (now() < until) {
          }
          vigil::this_fiber::yield();
        }
      }));
    }
    fire.late.reserve(samples);
    vigil::spawn([&] {
      auto& service = static_cast<timer_service&>(vigil::detail::current_scheduler()->timers());
      vigil::detail::runtime_timer* const t =
          service.make_send(&firing::fired, &fire, service.generation());
      for (std::size_t i = 0; i < samples; ++i) {
        const nanos deadline = now() + millisecond;
        fire.done = false;
        service.arm_at(*t, deadline);
        vigil::sleep_until(vigil::clock::time_point(std::chrono::nanoseconds(deadline)));
        running.push_back(now() - deadline);
        while (!fire.done.load())
          vigil::this_fiber::yield();
      }
      release_record(*t);
    }).join();
    over = true;
  });
  reference.join();
  return {quantile(fire.late, 0.99), quantile(running, 0.99), quantile(bare, 0.99)};
}

// --- a long computation

// Runs one round: a fiber runs again after 5 ms and computes for 500 ms. The timer is
// armed before that, or by the fiber itself just after. Returns how late the callback
// ran.
nanos round_beside_computation(bool armed_before) {
  constexpr nanos delay = 10 * millisecond;

  struct shared {
    std::atomic<nanos> deadline{0};
    std::atomic<nanos> ran{0};
  };

  static shared s;
  s.ran = 0;
  const auto arm = [] {
    s.deadline = now() + delay;
    vigil::after_func(
        vigil::clock::time_point(std::chrono::nanoseconds(s.deadline.load())) - vigil::clock::now(),
        [] { s.ran = now(); });
  };
  if (armed_before) arm();
  vigil::spawn([&] {
    vigil::sleep_for(5ms);
    if (!armed_before) arm();
    const nanos until = now() + 500 * millisecond;
    while (now() < until) {
    }
  }).join();
  while (s.ran.load() == 0)
    vigil::sleep_for(1ms);
  return s.ran.load() - s.deadline.load();
}

// --- main beside a computation

enum class computes : std::uint8_t { fiber, callback, tick };

// Runs one round: main sleeps 10 ms, while the other computes for 300 ms or until main
// runs again. Returns how late that was.
nanos late_wake_of_main(std::size_t workers, computes which) {
  std::atomic<bool> woken{false};
  nanos late = 0;
  vigil::run(with_workers(workers), [&] {
    const auto compute = [&woken] {
      const nanos until = now() + 300 * millisecond;
      while (!woken.load() && now() < until) {
      }
    };
    vigil::timer timer;
    switch (which) {
      case computes::fiber:
        vigil::go(compute);
        break;
      case computes::callback:
        timer = vigil::after_func(2ms, compute);
        break;
      case computes::tick:
        timer = vigil::every(2ms, compute);
        break;
    }
    const nanos deadline = now() + 10 * millisecond;
    vigil::sleep_until(vigil::clock::time_point(std::chrono::nanoseconds(deadline)));
    late = now() - deadline;
    woken = true;
    timer.stop();
  });
  return late;
}

// --- a value there and back

// Returns the CPU time of the whole process for each value.
double nanos_each_value(std::size_t workers, std::size_t n) {
  return vigil::run(with_workers(workers), [n] {
    const auto there = vigil::make_channel<std::size_t>();
    const auto back = vigil::make_channel<std::size_t>();
    auto other = vigil::spawn([&] {
      for (const std::size_t i : there)
        back.send(i);
    });
    const nanos start = cpu_time();
    for (std::size_t i = 0; i < n; ++i) {
      there.send(i);
      static_cast<void>(back.recv());
    }
    const nanos used = cpu_time() - start;
    there.close();
    other.join();
    return static_cast<double>(used) / static_cast<double>(n);
  });
}

}  // namespace

void overshoot_idle(report& out) {
  const std::size_t samples = out.is_asked_for() ? 20'000 : 2'000;
  vigil::run(with_workers(0), [&] {
    bare_thread reference;
    std::vector<nanos> ours;
    std::vector<nanos> bare;
    // Runs in a fiber of its own, like most code.
    vigil::spawn([&] {
      for (std::size_t i = 0; i < samples; ++i) {
        const nanos deadline = now() + millisecond;
        vigil::sleep_until(vigil::clock::time_point(std::chrono::nanoseconds(deadline)));
        ours.push_back(now() - deadline);
        bare.push_back(reference.sleep_once());
      }
    }).join();
    compare_quantiles(out, "overshoot, idle", ours, bare);
    out.add(
        "samples that ended early",
        static_cast<double>(std::count_if(ours.begin(), ours.end(), [](nanos n) { return n < 0; })),
        "");
  });
}

void overshoot_busy(report& out) {
  const std::size_t repetitions = out.is_asked_for() ? 9 : 3;
  const std::size_t samples = out.is_asked_for() ? 1'000 : 400;
  for (const std::size_t crowd : {std::size_t{4}, std::size_t{64}}) {
    std::vector<double> firing_p99;
    std::vector<double> running_p99;
    std::vector<double> bare_p99;
    std::vector<double> above;
    for (std::size_t i = 0; i < repetitions; ++i) {
      const busy_run r = with_crowd(crowd, samples);
      firing_p99.push_back(r.firing_p99 / 1e3);
      running_p99.push_back(r.running_p99 / 1e3);
      bare_p99.push_back(r.bare_p99 / 1e3);
      above.push_back((r.firing_p99 - r.bare_p99) / 1e3);
    }
    const std::string name = "busy, " + std::to_string(crowd) + " yielding fibers per worker: ";
    out.compare(name + "firing p99", median(firing_p99), "us", median(bare_p99));
    out.add(name + "firing above bare", median(above), "us", "median of the runs' differences");
    out.compare(name + "running p99", median(running_p99), "us", median(bare_p99));
  }
}

void long_computation(report& out) {
  constexpr std::size_t rounds = 100;
  const auto in_time = [](const std::vector<nanos>& late) {
    return std::count_if(late.begin(), late.end(), [](nanos n) { return n <= 2 * millisecond; });
  };
  std::atomic<bool> over{false};
  std::vector<nanos> bare;
  std::thread reference([&] {
    exact_sleeps();
    while (!over.load())
      bare.push_back(bare_sleep_until(now() + 10 * millisecond));
  });
  vigil::run(with_workers(2), [&] {
    std::vector<nanos> all;
    for (const bool before : {true, false}) {
      std::vector<nanos> late;
      for (std::size_t i = 0; i < rounds; ++i)
        late.push_back(round_beside_computation(before));
      out.add(before ? "armed before the fiber woke: within 2 ms"
                     : "armed by the fiber just after it woke: within 2 ms",
              static_cast<double>(in_time(late)),
              "of 100");
      all.insert(all.end(), late.begin(), late.end());
    }
    over = true;
    reference.join();
    out.compare("within 2 ms, together",
                static_cast<double>(in_time(all)),
                "of 200",
                200.0 * static_cast<double>(in_time(bare)) / static_cast<double>(bare.size()));
    out.compare("lateness, p50", quantile(all, 0.5) / 1e3, "us", quantile(bare, 0.5) / 1e3);
    out.compare("lateness, p99", quantile(all, 0.99) / 1e3, "us", quantile(bare, 0.99) / 1e3);
    out.compare("lateness, latest", quantile(all, 1) / 1e3, "us", quantile(bare, 1) / 1e3);
  });
}

void main_beside_computation(report& out) {
  constexpr int rounds = 20;
  for (const std::size_t workers : {std::size_t{2}, std::size_t{4}}) {
    for (const auto& [name, which] : {std::pair{"a fiber", computes::fiber},
                                      {"a callback", computes::callback},
                                      {"a tick of every", computes::tick}}) {
      std::vector<nanos> late;
      for (int i = 0; i < rounds; ++i)
        late.push_back(late_wake_of_main(workers, which));
      const std::string title = "main's sleep beside " + std::string(name) + " that computes, " +
                                std::to_string(workers) + " workers: late, ";
      out.add(title + "p50", quantile(late, 0.5) / 1e3, "us");
      out.add(title + "latest", quantile(late, 1) / 1e3, "us");
    }
  }
}

// Takes turns, so that a busy machine hits all alike.
void talk_with_main(report& out) {
  constexpr std::size_t values = 100'000;
  constexpr int repetitions = 9;
  constexpr std::size_t counts[] = {1, 2, 4};
  std::vector<double> each[3];
  for (int i = 0; i < repetitions; ++i) {
    for (std::size_t k = 0; k < 3; ++k)
      each[k].push_back(nanos_each_value(counts[k], values));
  }
  const double one = median(each[0]);
  for (std::size_t k = 0; k < 3; ++k) {
    const std::string title =
        "main and a fiber, there and back, workers: " + std::to_string(counts[k]);
    out.add(title, median(each[k]), "ns", "CPU");
    if (k != 0) out.add(title + ", of one worker's", median(each[k]) / one, "", "at most 1.15");
  }
}

}  // namespace bench
