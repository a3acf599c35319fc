// The workloads with Boost.Fiber: sleeps, yields, spawn and join, channels, a mutex.
//
// One worker uses round_robin, the default; two share a queue (shared_work), the
// algorithm in Boost's own benchmarks that takes any number of threads. Stacks are 16
// KiB, from Boost's pool on one thread, from malloc for two and for sleepers (the pool
// touches a second page of each stack). Stacks of the default 128 KiB are mapped one by
// one, which costs a system call or two for each. There is no timer object, so there is
// nothing to arm and stop.
#include "peers.hpp"

#include <chrono>
#include <memory>

#include <boost/fiber/algo/shared_work.hpp>
#include <boost/fiber/barrier.hpp>
#include <boost/fiber/buffered_channel.hpp>
#include <boost/fiber/condition_variable.hpp>
#include <boost/fiber/fiber.hpp>
#include <boost/fiber/fixedsize_stack.hpp>
#include <boost/fiber/mutex.hpp>
#include <boost/fiber/operations.hpp>
#include <boost/fiber/pooled_fixedsize_stack.hpp>
#include <boost/fiber/unbuffered_channel.hpp>

namespace {

using namespace peers;
using boost::fibers::fiber;
namespace this_fiber = boost::this_fiber;
using std::chrono::nanoseconds;

constexpr std::size_t stack_size = 16 * 1024;

void sleep(nanos length) {
  this_fiber::sleep_for(nanoseconds(length));
}

void sleep_until(nanos t) {
  using clock = std::chrono::steady_clock;
  this_fiber::sleep_until(clock::time_point(nanoseconds(t)));
}

// Threads that help to run fibers while the object lives.
class workers {
 public:
  explicit workers(std::size_t n) : started_(n) {
    if (n == 1) return;
    for (std::size_t i = 1; i < n; ++i)
      threads_.emplace_back([this] { help(); });
    boost::fibers::use_scheduling_algorithm<boost::fibers::algo::shared_work>(true);
    started_.wait();
  }

  ~workers() {
    {
      const std::unique_lock lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_)
      t.join();
  }

  workers(const workers&) = delete;
  workers& operator=(const workers&) = delete;

 private:
  void help() {
    boost::fibers::use_scheduling_algorithm<boost::fibers::algo::shared_work>(true);
    started_.wait();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
  }

  boost::fibers::mutex mutex_;
  boost::fibers::condition_variable_any changed_;
  bool over_ = false;
  boost::fibers::barrier started_;
  std::vector<std::thread> threads_;
};

int yield(const request& asked) {
  const std::size_t ops = asked["ops"];
  const std::size_t n = asked["fibers"];
  return serve([&] {
    const auto often = [ops] {
      for (std::size_t i = 0; i < ops; ++i)
        this_fiber::yield();
    };
    const nanos start = cpu_time();
    std::vector<fiber> all;
    for (std::size_t i = 0; i < n; ++i)
      all.emplace_back(often);
    for (fiber& f : all)
      f.join();
    return numbers{{"yield", each(cpu_time() - start, n * ops)}};
  });
}

// Starts fibers one at a time, then a hundred at a time, on stacks from `stacks`.
template <class Stacks>
numbers spawn_and_join(std::size_t ops, Stacks& stacks) {
  const auto start = [&stacks] { return fiber(std::allocator_arg, stacks, [] {}); };
  const nanos begun = now();
  for (std::size_t i = 0; i < ops; ++i)
    start().join();
  const nanos middle = now();
  std::vector<fiber> fibers(100);
  for (std::size_t i = 0; i < ops / 100; ++i) {
    for (fiber& f : fibers)
      f = start();
    for (fiber& f : fibers)
      f.join();
  }
  return {{"single", each(middle - begun, ops)}, {"hundred", each(now() - middle, ops)}};
}

int spawn(const request& asked) {
  const std::size_t ops = asked["ops"];
  if (asked["workers"] == 1) {
    boost::fibers::pooled_fixedsize_stack stacks(stack_size);
    return serve([&] { return spawn_and_join(ops, stacks); });
  }
  // The pool is not for several threads.
  const workers two(2);
  boost::fibers::fixedsize_stack stacks(stack_size);
  return serve([&] { return spawn_and_join(ops, stacks); });
}

// Measures each way in turn; see workloads.py.
int channels(const request& asked) {
  using boost::fibers::buffered_channel;
  using boost::fibers::unbuffered_channel;
  const std::size_t ops = asked["ops"];
  const workers all_workers(asked["workers"]);
  return serve([&] {
    const auto there_and_back = [ops](auto& ping, auto& pong, const auto& receive) {
      const nanos start = now();
      fiber other([&] {
        for (std::size_t i = 0; i < ops; ++i) {
          receive(ping);
          pong.push(i);
        }
      });
      for (std::size_t i = 0; i < ops; ++i) {
        ping.push(i);
        receive(pong);
      }
      other.join();
      return each(now() - start, ops);
    };
    // Capacities of a buffered_channel are powers of two, and one place stays free.
    const auto through = [ops](std::size_t fibers, std::size_t capacity) {
      buffered_channel<std::size_t> items(capacity);
      const nanos start = now();
      std::vector<fiber> all;
      for (std::size_t f = 0; f < fibers; ++f) {
        all.emplace_back([&] {
          for (std::size_t i = 0; i < ops / fibers; ++i)
            items.push(i);
        });
        all.emplace_back([&] {
          std::size_t value = 0;
          for (std::size_t i = 0; i < ops / fibers; ++i)
            items.pop(value);
        });
      }
      for (fiber& f : all)
        f.join();
      return each(now() - start, ops);
    };
    unbuffered_channel<std::size_t> ping;
    unbuffered_channel<std::size_t> pong;
    buffered_channel<std::size_t> one_ping(2);
    buffered_channel<std::size_t> one_pong(2);
    return numbers{{"rendezvous",
                    there_and_back(ping,
                                   pong,
                                   [](auto& from) {
                                     std::size_t value = 0;
                                     from.pop(value);
                                   })},
                   {"timed",
                    there_and_back(one_ping,
                                   one_pong,
                                   [](auto& from) {
                                     std::size_t value = 0;
                                     from.pop_wait_for(value, nanoseconds(second));
                                   })},
                   {"buffered", through(1, 128)},
                   {"shared", through(4, 8)}};
  });
}

int mutex(const request& asked) {
  const workers all(asked["workers"]);
  boost::fibers::fixedsize_stack stacks(stack_size);
  return serve([&] {
    return contend<boost::fibers::mutex>(
        asked["ops"],
        [&](std::size_t n, const auto& f) {
          std::vector<fiber> fibers;
          for (std::size_t i = 0; i < n; ++i)
            fibers.emplace_back(std::allocator_arg, stacks, f);
          for (fiber& one : fibers)
            one.join();
        },
        [] { this_fiber::yield(); });
  });
}

int sleepers(const request& asked) {
  const std::size_t n = asked["n"];
  const workers all(asked["workers"]);
  boost::fibers::fixedsize_stack stacks(stack_size);
  return serve([&] {
    std::atomic<std::size_t> asleep{0};
    std::atomic<std::size_t> done{0};
    random_numbers dice;
    const double memory = memory_held();
    const nanos start = cpu_time();
    const nanos first = now() + time_to_start(asked);
    for (std::size_t i = 0; i < n; ++i) {
      const nanos t = first + dice.within(second);
      fiber(std::allocator_arg, stacks, [t, &asleep, &done] {
        asleep.fetch_add(1);
        sleep_until(t);
        done.fetch_add(1);
      }).detach();
    }
    while (asleep.load() < n)
      sleep(millisecond);
    const bool together = now() < first;
    const double held = memory_held() - memory;
    while (done.load() < n)
      sleep(5 * millisecond);
    return numbers{{"cpu", each(cpu_time() - start, n)},
                   {"memory", held / static_cast<double>(n)},
                   {"together", together ? 1.0 : 0.0}};
  });
}

int overshoot(const request& asked) {
  return serve([&] {
    lateness late(asked["n"]);
    for (std::size_t i = 0; i < asked["n"]; ++i) {
      const nanos deadline = now() + millisecond;
      sleep(millisecond);
      late.add(now() - deadline);
    }
    return late.result();
  });
}

// A timer is a fiber that sleeps.
int kernel_random(const request& asked) {
  boost::fibers::pooled_fixedsize_stack stacks(stack_size);
  return serve([&] {
    random_numbers dice;
    return counted([&] {
      std::vector<fiber> fibers;
      for (std::size_t i = 0; i < asked["n"]; ++i)
        fibers.emplace_back(std::allocator_arg, stacks, [d = dice.within(second)] { sleep(d); });
      for (fiber& f : fibers)
        f.join();
    });
  });
}

int kernel_ticks(const request& asked) {
  return serve([&] {
    return counted([&] {
      const nanos start = now();
      for (std::size_t i = 1; i <= asked["n"]; ++i)
        sleep_until(start + static_cast<nanos>(i) * millisecond);
    });
  });
}

}  // namespace

int main(int count, char** arguments) {
  const request asked(count, arguments);
  if (asked.is("yield")) return yield(asked);
  if (asked.is("spawn")) return spawn(asked);
  if (asked.is("channels")) return channels(asked);
  if (asked.is("mutex")) return mutex(asked);
  if (asked.is("sleepers")) return sleepers(asked);
  if (asked.is("overshoot")) return overshoot(asked);
  if (asked.is("kernel-random")) return kernel_random(asked);
  if (asked.is("kernel-ticks")) return kernel_ticks(asked);
  return unsupported();
}
