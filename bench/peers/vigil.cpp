// The workloads with vigil. Timers are `after_func` handles, sleepers are fibers; samples
// run in a fiber of their own. Without a number of workers there are as
// many as vigil takes by default.
//
// This file follows vigil's interface; the workloads themselves are those of all peers
// (see workloads.py).
#include "peers.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <memory>

namespace {

using namespace peers;
using std::chrono::nanoseconds;

int with_workers(std::size_t n, const auto& program) {
  vigil::options settings;
  settings.workers = n;
  return vigil::run(settings, program);
}

// Samples are taken in a fiber of their own.
int serve_in_fibers(const auto& sample) {
  return serve([&] { return vigil::spawn([&] { return sample(); }).join(); });
}

vigil::clock::time_point at(nanos t) {
  return vigil::clock::time_point(nanoseconds(t));
}

// Returns the CPU time of each operation. It includes work that the runtime puts off, as
// far as that is done when the fiber gives its worker away.
double cpu_each(std::size_t n, const auto& operation) {
  const nanos start = cpu_time();
  for (std::size_t i = 0; i < n; ++i)
    operation(i);
  vigil::this_fiber::yield();
  return each(cpu_time() - start, n);
}

std::vector<vigil::timer> make_timers(std::size_t n, bool pending) {
  random_numbers dice(7);
  std::vector<vigil::timer> timers;
  timers.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    timers.push_back(vigil::after_func(nanoseconds(dice.far()), [] {}));
    if (!pending) timers.back().stop();
  }
  return timers;
}

int arm(const request& asked) {
  return with_workers(asked["workers"], [&] {
    std::vector<vigil::timer> others = make_timers(asked["others"], true);
    std::vector<vigil::timer> records = make_timers(asked["records"], false);
    vigil::timer one = make_timers(1, false).front();
    random_numbers dice;
    const std::size_t ops = asked["ops"];
    const auto draw = [&] { return nanoseconds(dice.far()); };
    return serve_in_fibers([&] {
      numbers result;
      result.push_back({"one", cpu_each(ops, [&](std::size_t) {
                          one.reset(draw());
                          one.stop();
                        })});
      result.push_back({"records", cpu_each(ops, [&](std::size_t i) {
                          vigil::timer& t = records[i % records.size()];
                          t.reset(draw());
                          t.stop();
                        })});
      result.push_back(
          {"fresh", cpu_each(ops, [&](std::size_t) { vigil::after_func(draw(), [] {}).stop(); })});
      one.reset(draw());
      result.push_back({"reset_one", cpu_each(ops, [&](std::size_t) { one.reset(draw()); })});
      one.stop();
      if (!others.empty()) {
        result.push_back({"reset_any", cpu_each(ops, [&](std::size_t) {
                            others[dice.below(others.size())].reset(draw());
                          })});
      }
      return result;
    });
  });
}

// Arms and stops its own timers, in n fibers at once, each on its own worker.
nanos arm_in_fibers(std::size_t n, std::size_t records, std::size_t ops) {
  std::atomic<std::size_t> arrived{0};
  std::vector<nanos> begun(n);
  std::vector<nanos> ended(n);
  std::vector<vigil::fiber<>> fibers;
  for (std::size_t f = 0; f < n; ++f) {
    fibers.push_back(vigil::spawn([&, f] {
      random_numbers dice(f);
      arrived.fetch_add(1);
      while (arrived.load() < n)
        vigil::this_fiber::yield();
      // Each fiber makes its own, on its own worker.
      std::vector<vigil::timer> own = make_timers(records, false);
      arrived.fetch_add(1);
      while (arrived.load() < 2 * n) {
      }
      work(settling);
      begun[f] = now();
      for (std::size_t i = 0; i < ops; ++i) {
        vigil::timer& t = own[i % own.size()];
        t.reset(nanoseconds(dice.far()));
        t.stop();
      }
      ended[f] = now();
    }));
  }
  for (vigil::fiber<>& f : fibers)
    f.join();
  return *std::max_element(ended.begin(), ended.end()) -
         *std::min_element(begun.begin(), begun.end());
}

int arm_parallel(const request& asked) {
  const std::size_t ops = asked["ops"];
  // Arms in `fibers` fibers of a runtime with `workers` workers.
  const auto time = [&](std::size_t workers, std::size_t fibers) {
    nanos length = 0;
    with_workers(workers, [&] {
      const std::vector<vigil::timer> others = make_timers(asked["others"], true);
      vigil::spawn([&] { length = arm_in_fibers(fibers, asked["records"], ops); }).join();
    });
    return length;
  };
  return serve([&] {
    const nanos alone = time(1, 1);
    const nanos one_of_two = time(2, 1);
    return scaling(ops, alone, one_of_two, time(2, 2));
  });
}

int burst(const request& asked) {
  return with_workers(asked["workers"], [&] {
    const std::size_t n = asked["n"];
    const nanos spread = static_cast<nanos>(asked["spread_us"]) * microsecond;
    return serve_in_fibers([&] {
      // The callbacks own it as well.
      struct state {
        std::atomic<std::size_t> fired{0};
        std::atomic<std::size_t> early{0};
        std::atomic<nanos> latest{0};
      };
      const auto shared = std::make_shared<state>();
      random_numbers dice;
      const nanos first = now() + 50 * millisecond + static_cast<nanos>(n) * 500;
      for (std::size_t i = 0; i < n; ++i) {
        const nanos t = first + dice.within(spread);
        vigil::after_func(nanoseconds(t - now()), [t, s = shared.get()] {
          const nanos late = now() - t;
          // ordering: counts, read after the last one.
          if (late < 0) s->early.fetch_add(1, std::memory_order_relaxed);
          nanos most = s->latest.load(std::memory_order_relaxed);  // ordering: as above
          while (late > most && !s->latest.compare_exchange_weak(most, late)) {
          }
          s->fired.fetch_add(1);
        });
      }
      const bool in_time = now() < first;
      vigil::sleep_until(at(first - millisecond));
      const nanos start = cpu_time();
      vigil::sleep_until(at(first + spread));
      while (shared->fired.load() < n)
        vigil::sleep_for(nanoseconds(millisecond));
      return numbers{{"cpu", each(cpu_time() - start, n)},
                     {"early", static_cast<double>(shared->early.load())},
                     {"latest", static_cast<double>(shared->latest.load()) / 1e6},
                     {"in_time", in_time ? 1.0 : 0.0}};
    });
  });
}

int yield(const request& asked) {
  return with_workers(asked["workers"], [&] {
    const std::size_t ops = asked["ops"];
    const std::size_t n = asked["fibers"];
    return serve_in_fibers([&] {
      const auto often = [ops] {
        for (std::size_t i = 0; i < ops; ++i)
          vigil::this_fiber::yield();
      };
      const nanos start = cpu_time();
      std::vector<vigil::fiber<>> all;
      for (std::size_t i = 0; i < n; ++i)
        all.push_back(vigil::spawn(often));
      for (vigil::fiber<>& f : all)
        f.join();
      return numbers{{"yield", each(cpu_time() - start, n * ops)}};
    });
  });
}

int spawn(const request& asked) {
  return with_workers(asked["workers"], [&] {
    const std::size_t ops = asked["ops"];
    return serve_in_fibers([&] {
      const nanos start = now();
      for (std::size_t i = 0; i < ops; ++i)
        vigil::spawn([] {}).join();
      const nanos middle = now();
      std::vector<vigil::fiber<>> fibers(100);
      for (std::size_t i = 0; i < ops / 100; ++i) {
        for (vigil::fiber<>& f : fibers)
          f = vigil::spawn([] {});
        for (vigil::fiber<>& f : fibers)
          f.join();
      }
      return numbers{{"single", each(middle - start, ops)}, {"hundred", each(now() - middle, ops)}};
    });
  });
}

// Measures each way in turn; see workloads.py.
int channels(const request& asked) {
  return with_workers(asked["workers"], [&] {
    const std::size_t ops = asked["ops"];
    return serve_in_fibers([&] {
      const auto there_and_back = [ops](std::size_t capacity, const auto& receive) {
        const auto ping = vigil::make_channel<std::size_t>(capacity);
        const auto pong = vigil::make_channel<std::size_t>(capacity);
        const nanos start = now();
        auto other = vigil::spawn([&] {
          for (std::size_t i = 0; i < ops; ++i) {
            receive(ping);
            pong.send(i);
          }
        });
        for (std::size_t i = 0; i < ops; ++i) {
          ping.send(i);
          receive(pong);
        }
        other.join();
        return each(now() - start, ops);
      };
      // From some fibers to as many others.
      const auto through = [ops](std::size_t fibers, std::size_t capacity) {
        const auto items = vigil::make_channel<std::size_t>(capacity);
        const nanos start = now();
        std::vector<vigil::fiber<>> all;
        for (std::size_t f = 0; f < fibers; ++f) {
          all.push_back(vigil::spawn([&] {
            for (std::size_t i = 0; i < ops / fibers; ++i)
              items.send(i);
          }));
          all.push_back(vigil::spawn([&] {
            for (std::size_t i = 0; i < ops / fibers; ++i)
              items.recv();
          }));
        }
        for (vigil::fiber<>& f : all)
          f.join();
        return each(now() - start, ops);
      };
      return numbers{
          {"rendezvous", there_and_back(0, [](const auto& from) { from.recv(); })},
          {"timed",
           there_and_back(
               1, [](const auto& from) { static_cast<void>(from.recv_for(nanoseconds(second))); })},
          {"buffered", through(1, 128)},
          {"shared", through(4, 8)}};
    });
  });
}

int mutex(const request& asked) {
  return with_workers(asked["workers"], [&] {
    return serve_in_fibers([&] {
      return contend<vigil::mutex>(
          asked["ops"],
          [](std::size_t n, const auto& f) {
            std::vector<vigil::fiber<>> all;
            for (std::size_t i = 0; i < n; ++i)
              all.push_back(vigil::spawn(f));
            for (vigil::fiber<>& one : all)
              one.join();
          },
          [] { vigil::this_fiber::yield(); });
    });
  });
}

int sleepers(const request& asked) {
  return with_workers(asked["workers"], [&] {
    const std::size_t n = asked["n"];
    return serve_in_fibers([&] {
      static std::atomic<std::size_t> asleep;
      static std::atomic<std::size_t> done;
      asleep = 0;
      done = 0;
      random_numbers dice;
      const double memory = memory_held();
      const nanos start = cpu_time();
      const nanos first = now() + time_to_start(asked);
      for (std::size_t i = 0; i < n; ++i) {
        vigil::go([t = first + dice.within(second)] {
          asleep.fetch_add(1);
          vigil::sleep_until(at(t));
          done.fetch_add(1);
        });
      }
      while (asleep.load() < n)
        vigil::sleep_for(nanoseconds(millisecond));
      const bool together = now() < first;
      const double held = memory_held() - memory;
      while (done.load() < n)
        vigil::sleep_for(nanoseconds(5 * millisecond));
      return numbers{{"cpu", each(cpu_time() - start, n)},
                     {"memory", held / static_cast<double>(n)},
                     {"together", together ? 1.0 : 0.0}};
    });
  });
}

int overshoot(const request& asked) {
  return with_workers(asked["workers"], [&] {
    return serve_in_fibers([&] {
      lateness late(asked["n"]);
      for (std::size_t i = 0; i < asked["n"]; ++i) {
        const nanos deadline = now() + millisecond;
        vigil::sleep_for(nanoseconds(millisecond));
        late.add(now() - deadline);
      }
      return late.result();
    });
  });
}

int kernel_random(const request& asked) {
  return with_workers(1, [&] {
    return serve_in_fibers([&] {
      const std::size_t n = asked["n"];
      static std::atomic<std::size_t> fired;
      fired = 0;
      random_numbers dice;
      return counted([&] {
        for (std::size_t i = 0; i < n; ++i)
          vigil::after_func(nanoseconds(dice.within(second)), [] { fired.fetch_add(1); });
        vigil::sleep_for(nanoseconds(second));
        while (fired.load() < n)
          vigil::sleep_for(nanoseconds(millisecond));
      });
    });
  });
}

int kernel_ticks(const request& asked) {
  return with_workers(1, [&] {
    return serve_in_fibers([&] {
      const std::size_t n = asked["n"];
      static std::atomic<std::size_t> ticks;
      ticks = 0;
      return counted([&] {
        vigil::timer beat = vigil::every(nanoseconds(millisecond), [] { ticks.fetch_add(1); });
        vigil::sleep_for(nanoseconds(static_cast<nanos>(n) * millisecond));
        beat.stop_and_wait();
      });
    });
  });
}

int kernel_stopped(const request& asked) {
  return with_workers(1, [&] {
    return serve_in_fibers([&] {
      return counted([&] {
        for (std::size_t i = 0; i < asked["n"]; ++i) {
          vigil::timer timeout = vigil::after_func(nanoseconds(hour), [] {});
          vigil::this_fiber::yield();
          work(20 * microsecond);
          timeout.stop();
        }
      });
    });
  });
}

// Refreshes a random idle timeout, with the time at hand.
int touch(const request& asked) {
  using entry = vigil::timeout_list::entry;
  return with_workers(1, [&] {
    vigil::timeout_list list(nanoseconds(hour), [](entry&) {});
    std::vector<entry> entries(asked["n"]);
    for (entry& e : entries)
      list.add(e);
    random_numbers dice;
    nanos time = now();
    return serve_in_fibers([&] {
      return numbers{{"touch", cpu_each(asked["ops"], [&](std::size_t) {
                        static_cast<void>(entries[dice.below(entries.size())].touch(at(++time)));
                      })}};
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  const request asked(count, arguments);
  if (asked.is("arm")) return arm(asked);
  if (asked.is("arm-parallel")) return arm_parallel(asked);
  if (asked.is("touch")) return touch(asked);
  if (asked.is("burst")) return burst(asked);
  if (asked.is("yield")) return yield(asked);
  if (asked.is("spawn")) return spawn(asked);
  if (asked.is("channels")) return channels(asked);
  if (asked.is("mutex")) return mutex(asked);
  if (asked.is("sleepers")) return sleepers(asked);
  if (asked.is("overshoot")) return overshoot(asked);
  if (asked.is("kernel-random")) return kernel_random(asked);
  if (asked.is("kernel-ticks")) return kernel_ticks(asked);
  if (asked.is("kernel-stopped")) return kernel_stopped(asked);
  return unsupported();
}
