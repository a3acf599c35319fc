// How idle stacks stay warm, and for how long: on a clock that the test moves.
#include "core/machine/stack_decay.hpp"

#include "core/machine/stack.hpp"
#include "core/machine/stack_helpers.hpp"
#include "core/machine/stack_pool.hpp"

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace vigil::detail;
using vigil::testing_support::decay_step;
using vigil::testing_support::take_all;

namespace {

constexpr nanos second = 1'000'000'000;
constexpr nanos step = 1'250'000'000;
constexpr std::size_t floor_of_pool = 1024;  // idle stacks that the pool always keeps
constexpr std::size_t no_bound = 1'000'000;

nanos test_time = 0;

// While it exists, the pool's clock is test_time.
class stopped_clock {
 public:
  stopped_clock() {
    test_time = 1000 * second;
    process_stacks.clock = []() noexcept { return test_time; };
  }

  ~stopped_clock() { process_stacks.clock = &monotonic_now; }

  stopped_clock(const stopped_clock&) = delete;
  stopped_clock& operator=(const stopped_clock&) = delete;
};

void burst(std::size_t count, std::size_t size = default_stack_size) {
  std::string error;
  const std::vector<stack> taken = take_all(size, count, error);
  REQUIRE(taken.size() == count);
  for (const stack& s : taken)
    release_stack(s);
}

// The worker that sleeps does this when it wakes.
void decay_now() {
  while (!decay_stacks()) {
  }
}

std::size_t idle() {
  return process_stacks.counts().idle;
}

std::size_t slabs_mapped() {
  return read_stack_stats().slabs;
}

}  // namespace

TEST_SUITE("stack_decay") {
  TEST_CASE("what a peak leaves over stays for a step at least and then halves and falls to none") {
    stack_decay d;
    d.set_limit(no_bound);
    d.forget(0, 100);
    CHECK(d.allowed(100) == 0);
    d.note(1, 1700);
    CHECK(d.allowed(1700) == 0);
    std::vector<std::size_t> curve;
    for (nanos at = 2; at < 13 * second; at += step) {
      d.note(at, 100);
      curve.push_back(d.allowed(100));
    }
    CHECK(curve == std::vector<std::size_t>{1600, 1600, 800, 600, 400, 300, 200, 100, 0, 0, 0});
  }

  TEST_CASE("a later peak counts from its own time on and steps that were missed are caught up") {
    stack_decay d;
    d.set_limit(no_bound);
    d.forget(0, 0);
    d.note(1, 1600);
    d.note(3 * step, 800);
    CHECK(d.allowed(0) == 800);
    d.note(5 * step, 0);
    CHECK(d.allowed(0) == 400);
    d.note(100 * step, 0);
    CHECK(d.allowed(0) == 0);
    CHECK(d.next_step() == 101 * step);
  }

  TEST_CASE("no more than the limit is allowed, and nothing without one") {
    stack_decay d;
    d.forget(0, 0);
    d.note(1, 1600);
    CHECK(d.allowed(0) == 0);
    d.set_limit(500);
    CHECK(d.allowed(0) == 500);
    d.note(7 * step, 0);
    CHECK(d.allowed(0) == 100);
  }

  TEST_CASE("a burst that comes again finds all its stacks with their memory") {
    const stopped_clock clock;
    for (const std::size_t size : {default_stack_size, std::size_t{64} * 1024}) {
      trim_stacks();
      const warm_stacks warm(no_bound);
      burst(10'000, size);
      const std::size_t slabs = slabs_mapped();
      const std::size_t first = process_stacks.counts().first;
      for (int again = 0; again < 5; ++again) {
        test_time += second;
        burst(10'000, size);
      }
      CHECK(process_stacks.counts().first == first);
      CHECK(slabs_mapped() == slabs);
    }
  }

  TEST_CASE("idle stacks lose their memory in eight steps and then no step is left") {
    const stopped_clock clock;
    trim_stacks();
    const std::size_t slabs = slabs_mapped();
    const warm_stacks warm(no_bound);
    CHECK(process_stacks.next_step() == never);
    burst(10'000);
    CHECK(idle() >= 10'000 - 256);
    const nanos ended = test_time;
    int steps = 0;
    while (process_stacks.next_step() != never) {
      REQUIRE(process_stacks.next_step() > test_time);
      test_time = process_stacks.next_step();
      const std::size_t before = slabs_mapped();
      decay_now();
      ++steps;
      CHECK(slabs_mapped() <= before);
      if (steps >= 2) CHECK(idle() <= 10'000 / 2 + floor_of_pool);
    }
    CHECK(steps >= 4);
    CHECK(steps <= 8);
    CHECK(test_time - ended <= 10 * second);
    // As without warm stacks: what 256 hot stacks keep, and one empty slab.
    CHECK(idle() <= floor_of_pool);
    CHECK(slabs_mapped() <= slabs + 256 / 32 + 2);
  }

  TEST_CASE("slabs of which a few stacks are in use lose the memory of the others") {
    const stopped_clock clock;
    trim_stacks();
    const warm_stacks warm(no_bound);
    std::string error;
    std::vector<stack> taken = take_all(256 * 1024, 8'000, error);
    std::vector<stack> kept;
    for (std::size_t i = 0; i < taken.size(); ++i) {
      if (i % 16 == 0) {
        kept.push_back(taken[i]);
      } else {
        release_stack(taken[i]);
      }
    }
    CHECK(idle() >= 7'000);
    const std::size_t slabs = slabs_mapped();
    test_time += 5 * second;
    decay_now();
    CHECK(idle() < 8'000 / 2 + floor_of_pool);
    test_time += 6 * second;
    decay_now();
    CHECK(idle() <= floor_of_pool);
    CHECK(slabs_mapped() == slabs);
    CHECK(process_stacks.next_step() == never);
    for (const stack& s : kept)
      release_stack(s);
  }

  TEST_CASE("a release does the step if no worker sleeps") {
    const stopped_clock clock;
    trim_stacks();
    const warm_stacks warm(no_bound);
    burst(10'000);
    test_time += 11 * second;
    for (int i = 0; i < 1'000 && process_stacks.next_step() != never; ++i)
      burst(1, 64 * 1024);
    CHECK(idle() <= floor_of_pool);
    CHECK(process_stacks.next_step() == never);
  }

  TEST_CASE("no more stacks stay warm than the limit says") {
    const stopped_clock clock;
    trim_stacks();
    const warm_stacks warm(3'000);
    burst(10'000);
    CHECK(idle() <= 3'000 + floor_of_pool);
    CHECK(idle() > 3'000 + floor_of_pool - 64);
    {
      const warm_stacks more(2'000);
      burst(10'000);
      CHECK(idle() <= 5'000 + floor_of_pool);
      CHECK(idle() > 5'000 + floor_of_pool - 64);
    }
    CHECK(idle() <= floor_of_pool);
  }

  TEST_CASE("the end of a run gives back what is warm") {
    const stopped_clock clock;
    trim_stacks();
    const std::size_t slabs = slabs_mapped();
    {
      const warm_stacks warm(no_bound);
      burst(10'000, 256 * 1024);
      CHECK(slabs_mapped() >= slabs + 10'000 / 64);
    }
    CHECK(process_stacks.next_step() == never);
    CHECK(slabs_mapped() <= slabs + 1);
    burst(10'000, 256 * 1024);
    CHECK(slabs_mapped() <= slabs + 1);
  }

  TEST_CASE("no slab is unmapped by the decay under a hold, and they are afterwards") {
    const stopped_clock clock;
    trim_stacks();
    const std::size_t slabs = slabs_mapped();
    const warm_stacks warm(no_bound);
    burst(2'000, 256 * 1024);
    const std::size_t most = slabs_mapped();
    {
      const slab_hold hold;
      test_time += 11 * second;
      decay_now();
      CHECK(slabs_mapped() == most);
      CHECK(process_stacks.next_step() == never);
    }
    burst(1, 64 * 1024);
    CHECK(slabs_mapped() <= slabs + 2);
  }

  TEST_CASE("one sleeper in the process attends to the decay") {
    const stopped_clock clock;
    const warm_stacks warm(no_bound);
    CHECK(decay_attendant().when() == never);
    burst(10'000);
    {
      const decay_attendant first;
      CHECK(first.when() == process_stacks.next_step());
      CHECK(decay_attendant().when() == never);
      CHECK_FALSE(decay_wants_attendant());
    }
    CHECK(decay_wants_attendant());
    CHECK(decay_attendant().when() == process_stacks.next_step());
  }

  TEST_CASE("several threads take, release and decay at the same time") {
    const decay_step quick(20'000);
    {
      const warm_stacks warm(1'000);
      std::atomic<bool> stop{false};
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 3; ++t) {
        threads.emplace_back([&stop, t] {
          std::mt19937 random(t);
          stack_cache cache;
          std::vector<stack> mine;
          while (!stop.load()) {
            const std::size_t size = random() % 2 == 0 ? default_stack_size : 256 * 1024;
            for (std::size_t n = random() % 500; mine.size() < n;)
              mine.push_back(cache.take(size));
            while (!mine.empty()) {
              cache.give(mine.back());
              mine.pop_back();
            }
            const decay_attendant attends;
            if (attends.when() <= process_stacks.clock()) decay_now();
          }
        });
      }
      for (int i = 0; i < 300; ++i) {
        std::size_t bytes = 0;
        const slab_hold hold;
        for_each_stack_in_use(
            [](const stack& s, void* sum) noexcept {
              *static_cast<std::size_t*>(sum) +=
                  static_cast<std::size_t>(*static_cast<const volatile std::byte*>(s.bottom));
            },
            &bytes);
        std::this_thread::yield();
      }
      stop.store(true);
      for (std::thread& t : threads)
        t.join();
    }
    CHECK(process_stacks.next_step() == never);
    trim_stacks();
  }
}
