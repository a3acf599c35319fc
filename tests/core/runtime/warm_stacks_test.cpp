// options::warm_stacks: how a program that goes idle gives back the memory of its stacks.
#include "core/machine/stack_helpers.hpp"
#include "core/machine/stack_pool.hpp"
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

// The most idle stacks that keep their memory though none may stay warm: those that the
// pool always keeps, and some in slabs of which more places are taken than free (SP3).
constexpr std::size_t most_when_cold = 1024 + 512;

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
      std::size_t sleeps = 0;
      do {
        vigil::sleep_for(300ms);
        ++sleeps;
      } while (process_stacks.next_step() != never);
      CHECK(idle() <= most_when_cold);
      // Several workers take turns, and nap.
      if (vigil::detail::runtime_access::core_of(rt).sched.workers().size() > 1) return;
      // Eight steps, the sleeps, and what a busy machine adds.
      const auto after = vigil::stats().kernel_waits;
      CHECK(after - before <= 8 + sleeps + 2);
      vigil::sleep_for(200ms);
      CHECK(vigil::stats().kernel_waits - after <= 2);
    });
  }

  TEST_CASE("while stacks are warm a burst that comes again touches no new one") {
    const decay_step slow(hour);
    in_runtime({.workers = {1}}, [] {
      burst();
      CHECK(idle() > most_when_cold);
      const std::size_t first = process_stacks.counts().first;
      for (int i = 0; i < 10; ++i)
        burst();
      // A burst may find another place in a slab, but not each time.
      CHECK(process_stacks.counts().first - first <= 64);
    });
    CHECK(idle() <= most_when_cold);
  }

  TEST_CASE("warm stacks are no work: all_done does not wait for them") {
    const decay_step slow(hour);
    in_runtime({.settings = {.exit = vigil::exit_when::all_done}}, [] {
      vigil::go(burst);
      vigil::after_func(1ms, [] {});
    });
    CHECK(idle() <= most_when_cold);
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
    CHECK(idle() <= most_when_cold);
  }

  TEST_CASE("the number 0 keeps none") {
    const decay_step slow(hour);
    in_runtime({.settings = {.warm_stacks = 0}}, [] {
      burst();
      CHECK(idle() <= most_when_cold);
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
      CHECK(idle() <= most_when_cold);
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
        // in_virtual counts the stacks in use, but fibers of the burst may end late.
        vigil::testing::run_virtual([] {
          const auto start = vigil::clock::now();
          burst();
          vigil::sleep_for(1h);
          CHECK(vigil::testing_support::since(start) == 1h);
        });
      });
    });
    CHECK(idle() <= most_when_cold);
  }
}
