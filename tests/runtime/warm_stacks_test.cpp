// options::warm_stacks: how a program that goes idle gives back the memory of its stacks.
#include "machine/stack_helpers.hpp"
#include "machine/stack_pool.hpp"
#include "support/in_runtime.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using vigil::detail::never;
using vigil::detail::process_stacks;
using vigil::testing_support::decay_step;
using vigil::testing_support::in_runtime;
using vigil::testing_support::in_virtual;

namespace {

constexpr vigil::detail::nanos hour = 3'600'000'000'000;
constexpr std::size_t many = 4'000;
constexpr std::size_t floor_of_pool = 1024;  // idle stacks that the pool always keeps

// So many fibers that live at the same time.
void burst() {
  vigil::group all;
  vigil::channel<void> open = vigil::make_channel<void>();
  for (std::size_t i = 0; i < many; ++i)
    all.go([&] { open.recv(); });
  open.close();
  all.wait();
}

std::size_t idle() {
  return process_stacks.counts().idle;
}

}  // namespace

TEST_SUITE("warm_stacks") {
  TEST_CASE("an idle program gives the memory back in a few wake-ups, and then has none") {
    const decay_step quick(30'000'000);  // 0.24 s for all of them
    in_runtime({}, [](vigil::runtime& rt) {
      burst();
      const auto before = vigil::stats().kernel_waits;
      vigil::sleep_for(600ms);
      CHECK(idle() <= floor_of_pool);
      CHECK(process_stacks.next_step() == never);
      const auto after = vigil::stats().kernel_waits;
      // Eight steps and the sleep itself; other workers lie down, perhaps after naps.
      const std::size_t workers = vigil::detail::runtime_access::core_of(rt).sched.workers().size();
      CHECK(after - before <= 8 + 1 + (workers - 1) * 25);
      vigil::sleep_for(200ms);
      CHECK(vigil::stats().kernel_waits - after <= 2 * workers);
    });
  }

  TEST_CASE("while stacks are warm a burst that comes again touches no new one") {
    const decay_step slow(hour);
    in_runtime({.workers = {1}}, [] {
      burst();
      CHECK(idle() > floor_of_pool);
      const std::size_t first = process_stacks.counts().first;
      for (int i = 0; i < 10; ++i)
        burst();
      // A burst may find another place in a slab, but not each time.
      CHECK(process_stacks.counts().first - first <= 64);
    });
    CHECK(idle() <= floor_of_pool);
  }

  TEST_CASE("warm stacks are no work: all_done does not wait for them") {
    const decay_step slow(hour);
    in_runtime({.settings = {.exit = vigil::exit_when::all_done}}, [] {
      vigil::go(burst);
      vigil::after_func(1ms, [] {});
    });
    CHECK(idle() <= floor_of_pool);
    CHECK(process_stacks.next_step() == never);
  }

  TEST_CASE("warm stacks are no timer: a deadlock is found at once") {
    const decay_step slow(hour);
    vigil::options o;
    o.deadlock = vigil::on_deadlock::fatal;
    CHECK_THROWS_AS(vigil::run(o,
                               [] {
                                 burst();
                                 vigil::make_channel<void>().recv();
                               }),
                    vigil::deadlock);
    CHECK(idle() <= floor_of_pool);
  }

  TEST_CASE("the number 0 keeps none") {
    const decay_step slow(hour);
    in_runtime({.settings = {.warm_stacks = 0}}, [] {
      burst();
      CHECK(idle() <= floor_of_pool);
      CHECK(process_stacks.next_step() == never);
    });
  }

  TEST_CASE("on virtual time nothing stays warm and the clock knows no step") {
    const decay_step quick(1'000);
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto waits = vigil::stats().kernel_waits;
      burst();
      CHECK(process_stacks.next_step() == never);
      CHECK(idle() <= floor_of_pool);
      vigil::sleep_for(1h);
      CHECK(vigil::testing_support::since(start) == 1h);
      CHECK(vigil::stats().kernel_waits == waits);
    });
  }

  TEST_CASE("virtual time beside a runtime with warm stacks stands still for no step") {
    const decay_step quick(1'000'000);
    in_runtime({.workers = {2}}, [] {
      burst();
      vigil::blocking([] {
        in_virtual([] {
          const auto start = vigil::clock::now();
          burst();
          vigil::sleep_for(1h);
          CHECK(vigil::testing_support::since(start) == 1h);
        });
      });
    });
    CHECK(idle() <= floor_of_pool);
  }
}
