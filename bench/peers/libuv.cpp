// The workloads with libuv: uv_timer_t in a loop.
//
// libuv counts in milliseconds from a time that the loop caches, so here uv_update_time()
// comes before each start, since the peers that count from now read the clock as well;
// `cached=1` leaves it out. A loop belongs to one thread, so two workers are two loops.
// libuv has no fibers.
#include "peers.hpp"

#include <memory>

#include <uv.h>

namespace {

using namespace peers;

// A loop, left open at its end unless close() was called, which needs the timers alive.
class loop {
 public:
  loop() { ::uv_loop_init(&loop_); }

  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;

  uv_loop_t* get() noexcept { return &loop_; }

  void run() noexcept { ::uv_run(&loop_, UV_RUN_DEFAULT); }

  void turn() noexcept { ::uv_run(&loop_, UV_RUN_NOWAIT); }

  void close() noexcept {
    ::uv_walk(
        &loop_, [](uv_handle_t* h, void*) { ::uv_close(h, nullptr); }, nullptr);
    run();
    ::uv_loop_close(&loop_);
  }

 private:
  uv_loop_t loop_{};
};

std::uint64_t whole_milliseconds(nanos d) {
  return static_cast<std::uint64_t>((d + millisecond - 1) / millisecond);
}

void nothing(uv_timer_t*) {}

void start(uv_timer_t& t, nanos delay, bool cached = false, uv_timer_cb f = &nothing) {
  if (!cached) ::uv_update_time(t.loop);
  ::uv_timer_start(&t, f, whole_milliseconds(delay), 0);
}

// The timers are linked in lists of the loop: none may move afterwards.
std::vector<uv_timer_t> make_timers(loop& l, std::size_t n) {
  std::vector<uv_timer_t> timers(n);
  for (uv_timer_t& t : timers)
    ::uv_timer_init(l.get(), &t);
  return timers;
}

// Pending timers that nobody touches.
std::vector<uv_timer_t> make_others(loop& l, std::size_t n) {
  std::vector<uv_timer_t> timers = make_timers(l, n);
  random_numbers dice(7);
  for (uv_timer_t& t : timers)
    start(t, dice.far(), true);
  return timers;
}

double cpu_each(loop& l, std::size_t n, const auto& operation) {
  const nanos begun = cpu_time();
  for (std::size_t i = 0; i < n; ++i)
    operation(i);
  l.turn();
  return each(cpu_time() - begun, n);
}

int arm(const request& asked) {
  loop l;
  const bool cached = asked["cached"] != 0;
  const std::size_t ops = asked["ops"];
  random_numbers dice;
  std::vector<uv_timer_t> others = make_others(l, asked["others"]);
  std::vector<uv_timer_t> records = make_timers(l, asked["records"]);
  std::vector<uv_timer_t> single = make_timers(l, 1);
  uv_timer_t& one = single.front();
  return serve([&] {
    numbers result;
    result.push_back({"one", cpu_each(l, ops, [&](std::size_t) {
                        start(one, dice.far(), cached);
                        ::uv_timer_stop(&one);
                      })});
    result.push_back({"records", cpu_each(l, ops, [&](std::size_t i) {
                        uv_timer_t& t = records[i % records.size()];
                        start(t, dice.far(), cached);
                        ::uv_timer_stop(&t);
                      })});
    result.push_back({"fresh", cpu_each(l, ops, [&](std::size_t i) {
                        auto* const t = static_cast<uv_timer_t*>(std::malloc(sizeof(uv_timer_t)));
                        ::uv_timer_init(l.get(), t);
                        start(*t, dice.far(), cached);
                        ::uv_timer_stop(t);
                        ::uv_close(reinterpret_cast<uv_handle_t*>(t),
                                   [](uv_handle_t* h) { std::free(h); });
                        // The loop frees them; a turn for each would be a system call.
                        if (i % 256 == 0) l.turn();
                      })});
    start(one, dice.far(), cached);
    result.push_back(
        {"reset_one", cpu_each(l, ops, [&](std::size_t) { start(one, dice.far(), cached); })});
    ::uv_timer_stop(&one);
    if (!others.empty()) {
      result.push_back({"reset_any", cpu_each(l, ops, [&](std::size_t) {
                          start(others[dice.below(others.size())], dice.far(), cached);
                        })});
    }
    return result;
  });
}

// The timers of one thread, which makes them itself: no two threads share a cache line.
struct own_timers {
  own_timers(std::size_t crowd, std::size_t n)
      : others(make_others(l, crowd)), timers(make_timers(l, n)) {}

  ~own_timers() { l.close(); }

  own_timers(const own_timers&) = delete;
  own_timers& operator=(const own_timers&) = delete;

  loop l;
  std::vector<uv_timer_t> others;
  std::vector<uv_timer_t> timers;
};

int arm_parallel(const request& asked) {
  const std::size_t ops = asked["ops"];
  const bool cached = asked["cached"] != 0;
  const auto arm_in_loops = [&](std::size_t n) {
    return time_threads(n, [&](std::size_t i) {
      return [own = std::make_shared<own_timers>(asked["others"], asked["records"]),
              dice = random_numbers(i),
              ops,
              cached]() mutable {
        for (std::size_t k = 0; k < ops; ++k) {
          uv_timer_t& t = own->timers[k % own->timers.size()];
          start(t, dice.far(), cached);
          ::uv_timer_stop(&t);
        }
      };
    });
  };
  return serve([&] {
    const nanos alone = arm_in_loops(1);
    // A second loop that has nothing to do is not in the way.
    return scaling(ops, alone, alone, arm_in_loops(2));
  });
}

int burst(const request& asked) {
  if (asked["workers"] != 1) return unsupported();

  struct counts {
    std::size_t early = 0;
    nanos latest = 0;
    nanos cpu_before = 0;
  };

  struct due {
    uv_timer_t timer;
    nanos asked_for;
    counts* sum;
  };

  const std::size_t n = asked["n"];
  const nanos spread = static_cast<nanos>(asked["spread_us"]) * microsecond;
  loop l;
  std::vector<due> all(n + 1);
  for (due& d : all)
    ::uv_timer_init(l.get(), &d.timer);
  random_numbers dice;
  return serve([&] {
    counts sum;
    const auto start_at = [&](due& d, nanos t, uv_timer_cb f) {
      const nanos read = now();
      const std::uint64_t delay = whole_milliseconds(t - read);
      d.asked_for = read + static_cast<nanos>(delay) * millisecond;
      d.sum = &sum;
      d.timer.data = &d;
      ::uv_update_time(l.get());
      ::uv_timer_start(&d.timer, f, delay, 0);
    };
    const nanos first = now() + 50 * millisecond + static_cast<nanos>(n) * 500;
    start_at(all.back(), first - 3 * millisecond, [](uv_timer_t* t) {
      static_cast<due*>(t->data)->sum->cpu_before = cpu_time();
    });
    for (std::size_t i = 0; i < n; ++i) {
      start_at(all[i], first + dice.within(spread), [](uv_timer_t* t) {
        const due& d = *static_cast<due*>(t->data);
        const nanos late = now() - d.asked_for;
        if (late < 0) ++d.sum->early;
        d.sum->latest = std::max(d.sum->latest, late);
      });
    }
    const bool in_time = now() < first;
    l.run();
    return numbers{{"cpu", each(cpu_time() - sum.cpu_before, n)},
                   {"early", static_cast<double>(sum.early)},
                   {"latest", static_cast<double>(sum.latest) / 1e6},
                   {"in_time", in_time ? 1.0 : 0.0}};
  });
}

int overshoot(const request& asked) {
  loop l;

  struct sleeper {
    uv_timer_t timer;
    nanos deadline;
    std::size_t left;
    lateness* late;

    void sleep() {
      deadline = now() + millisecond;
      start(timer, millisecond, false, [](uv_timer_t* t) {
        auto& self = *static_cast<sleeper*>(t->data);
        self.late->add(now() - self.deadline);
        if (--self.left > 0) self.sleep();
      });
    }
  };

  return serve([&] {
    lateness late(asked["n"]);
    sleeper s{{}, 0, asked["n"], &late};
    ::uv_timer_init(l.get(), &s.timer);
    s.timer.data = &s;
    s.sleep();
    l.run();
    ::uv_close(reinterpret_cast<uv_handle_t*>(&s.timer), nullptr);
    l.turn();
    return late.result();
  });
}

int kernel_random(const request& asked) {
  loop l;
  std::vector<uv_timer_t> timers = make_timers(l, asked["n"]);
  random_numbers dice;
  return serve([&] {
    return counted([&] {
      for (uv_timer_t& t : timers)
        start(t, dice.within(second));
      l.run();
    });
  });
}

int kernel_ticks(const request& asked) {
  loop l;
  uv_timer_t beat{};
  ::uv_timer_init(l.get(), &beat);
  std::size_t left = 0;
  beat.data = &left;
  return serve([&] {
    left = asked["n"];
    return counted([&] {
      ::uv_update_time(l.get());
      ::uv_timer_start(
          &beat,
          [](uv_timer_t* t) {
            if (--*static_cast<std::size_t*>(t->data) == 0) ::uv_timer_stop(t);
          },
          1,
          1);
      l.run();
    });
  });
}

int kernel_stopped(const request& asked) {
  loop l;
  uv_timer_t timeout{};
  ::uv_timer_init(l.get(), &timeout);
  return serve([&] {
    return counted([&] {
      for (std::size_t i = 0; i < asked["n"]; ++i) {
        start(timeout, hour);
        l.turn();
        work(20 * microsecond);
        ::uv_timer_stop(&timeout);
      }
    });
  });
}

// Measures uv_timer_again, by the time that the loop caches.
int touch(const request& asked) {
  loop l;
  std::vector<uv_timer_t> timers = make_timers(l, asked["n"]);
  for (uv_timer_t& t : timers) {
    constexpr std::uint64_t hour_in_milliseconds = hour / millisecond;
    ::uv_timer_start(
        &t, [](uv_timer_t*) {}, hour_in_milliseconds, hour_in_milliseconds);
  }
  random_numbers dice;
  return serve([&] {
    ::uv_update_time(l.get());
    return numbers{{"touch", cpu_each(l, asked["ops"], [&](std::size_t) {
                      ::uv_timer_again(&timers[dice.below(timers.size())]);
                    })}};
  });
}

}  // namespace

int main(int count, char** arguments) {
  const request asked(count, arguments);
  if (asked.is("arm")) return arm(asked);
  if (asked.is("arm-parallel")) return arm_parallel(asked);
  if (asked.is("touch")) return touch(asked);
  if (asked.is("burst")) return burst(asked);
  if (asked.is("overshoot")) return overshoot(asked);
  if (asked.is("kernel-random")) return kernel_random(asked);
  if (asked.is("kernel-ticks")) return kernel_ticks(asked);
  if (asked.is("kernel-stopped")) return kernel_stopped(asked);
  return unsupported();
}
