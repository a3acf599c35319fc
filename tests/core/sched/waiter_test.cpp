#include "core/sched/wait/waiter.hpp"

#include "core/sched/call/park.hpp"
#include "core/sched/wait/note.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <thread>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::detail::note;
using vigil::detail::outcome;
using vigil::detail::ticket;
using vigil::detail::waiter;

namespace {

constexpr outcome all[] = {
    outcome::value, outcome::closed, outcome::timeout, outcome::cancelled, outcome::stopped};

}  // namespace

TEST_SUITE("waiter") {
  TEST_CASE("an open ticket is claimed once, by any of the five outcomes") {
    note n;
    waiter w(n);
    for (const outcome how : all) {
      const ticket t = w.open(true);
      CHECK(w.outcome() == outcome::open);
      CHECK(w.claim(t, how));
      CHECK(w.outcome() == how);
      for (const outcome late : all)
        CHECK_FALSE(w.claim(t, late));
      CHECK_FALSE(w.claim_stop());
      CHECK(w.outcome() == how);
    }
  }

  TEST_CASE("no ticket is used twice and an old one claims nothing") {
    note n;
    waiter w(n);
    ticket last = 0;
    for (int i = 0; i < 1000; ++i) {
      const ticket t = w.open(i % 2 == 0);
      CHECK(t > last);
      CHECK_FALSE(w.claim(last, outcome::timeout));
      CHECK_FALSE(w.claim(t + 1, outcome::timeout));
      CHECK(w.outcome() == outcome::open);
      CHECK(w.claim(t, outcome::value));
      last = t;
    }
  }

  TEST_CASE("nothing is claimed before the first wait is opened") {
    note n;
    waiter w(n);
    CHECK_FALSE(w.claim(0, outcome::value));
    CHECK_FALSE(w.claim(1, outcome::value));
    CHECK_FALSE(w.claim_stop());
  }

  TEST_CASE("a stop claims only a wait that was opened as stoppable") {
    note n;
    waiter w(n);
    const ticket shielded = w.open(false);
    CHECK_FALSE(w.claim_stop());
    CHECK(w.claim(shielded, outcome::value));
    w.open(true);
    CHECK(w.claim_stop());
    CHECK(w.outcome() == outcome::stopped);
    CHECK_FALSE(w.claim_stop());
  }

  TEST_CASE("threads that race for a ticket: exactly one wins each time") {
    note n;
    waiter w(n);
    std::atomic<ticket> current{0};
    std::atomic<int> won{0};
    std::atomic<int> arrived{0};
    std::atomic<bool> done{false};
    const auto race = [&](outcome how, bool by_stop) {
      ticket seen = 0;
      for (;;) {
        ticket t = 0;
        while ((t = current.load()) == seen) {
          if (done.load()) return;
          std::this_thread::yield();
        }
        seen = t;
        if (by_stop ? w.claim_stop() : w.claim(t, how)) won.fetch_add(1);
        arrived.fetch_add(1);
      }
    };
    std::thread a(race, outcome::value, false);
    std::thread b(race, outcome::timeout, false);
    std::thread c(race, outcome::stopped, true);
    repeat(rounds(10'000), [&](int) {
      arrived.store(0);
      won.store(0);
      current.store(w.open(true));
      while (arrived.load() != 3)
        std::this_thread::yield();
      if (won.load() != 1) FAIL("won ", won.load(), " times");
    });
    done.store(true);
    a.join();
    b.join();
    c.join();
  }

  TEST_CASE("a plain thread is delivered through its note, before or after it sleeps") {
    for (int i = 0; i < rounds(2000); ++i) {
      note n;
      waiter w(n);
      n.clear();
      const ticket t = w.open(false);
      int handed_over = 0;
      std::thread giver([&] {
        if (w.claim(t, outcome::value)) {
          handed_over = 7;
          w.deliver();
        }
      });
      CHECK(n.sleep_until(vigil::detail::never));
      CHECK(w.outcome() == outcome::value);
      CHECK(handed_over == 7);
      giver.join();
    }
  }

  TEST_CASE("a coroutine is delivered by its resume function") {
    static int resumed = 0;
    resumed = 0;
    int frame = 5;
    waiter w([](void* f) noexcept { resumed += *static_cast<int*>(f); }, &frame);
    CHECK(w.type() == waiter::kind::of_coroutine);
    const ticket t = w.open(true);
    CHECK(w.claim(t, outcome::closed));
    w.deliver();
    CHECK(resumed == 5);
  }

  TEST_CASE("a parked fiber gets the outcome of the first claim") {
    for_each_seed(20, [] {
      for (const outcome how : {outcome::value, outcome::closed, outcome::cancelled}) {
        auto& self = *vigil::detail::current_fiber();
        const ticket t = self.own_waiter.open(true);
        for (int i = 0; i < 3; ++i) {
          vigil::go([&self, t, how] {
            if (self.own_waiter.claim(t, how)) self.own_waiter.deliver();
          });
        }
        CHECK(vigil::detail::wait(
                  self, t, vigil::detail::wait_reason::test, vigil::detail::no_limit, true) == how);
        vigil::testing::settle();
      }
    });
  }

  TEST_CASE("a deadline ends a wait as timeout at its instant, another outcome disarms it") {
    in_virtual([] {
      auto& self = *vigil::detail::current_fiber();
      const auto wait_with = [&](vigil::detail::nanos deadline) {
        const ticket t = self.own_waiter.open(true);
        vigil::go([&self, t] {
          vigil::sleep_for(1s);
          if (self.own_waiter.claim(t, outcome::value)) self.own_waiter.deliver();
        });
        return vigil::detail::wait(
            self, t, vigil::detail::wait_reason::test, vigil::detail::until(deadline), true);
      };
      const auto start = vigil::clock::now();
      const auto at = [&](std::chrono::nanoseconds d) {
        return (vigil::clock::now() + d).time_since_epoch().count();
      };
      CHECK(wait_with(at(500ms)) == outcome::timeout);
      CHECK(since(start) == 500ms);
      CHECK(wait_with(at(2s)) == outcome::value);
      CHECK(since(start) == 1500ms);
      CHECK(wait_with(at(-1s)) == outcome::timeout);
      CHECK(since(start) == 1500ms);
      vigil::sleep_for(10s);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("value, timeout and stop race for parked fibers and none is lost or doubled") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      std::atomic<int> ended{0};
      for (int i = 0; i < 20; ++i) {
        vigil::go([&, i] {
          seeded dice(static_cast<std::uint64_t>(i) + 1);
          auto& self = *vigil::detail::current_fiber();
          for (int round = 0; round < rounds(1000); ++round) {
            std::atomic<int> claims{0};
            std::atomic<int> racers{2};
            const ticket t = self.own_waiter.open(true);
            for (int n = 0; n < 2; ++n) {
              vigil::go([&, t, n] {
                if (n == 1) vigil::this_fiber::yield();
                if (self.own_waiter.claim(t, n == 0 ? outcome::value : outcome::closed)) {
                  claims.fetch_add(1);
                  self.own_waiter.deliver();
                }
                racers.fetch_sub(1);
              });
            }
            const auto deadline = vigil::clock::now() + std::chrono::nanoseconds(dice.below(3000));
            const outcome how = vigil::detail::wait(
                self, t, vigil::detail::wait_reason::test, vigil::detail::until(deadline), true);
            while (racers.load() != 0)
              vigil::this_fiber::yield();
            REQUIRE(claims.load() == (how == outcome::timeout ? 0 : 1));
          }
          ended.fetch_add(1);
        });
      }
      while (ended.load() != 20)
        vigil::sleep_for(100us);
    });
  }
}

TEST_SUITE("park and ready") {
  // Go: Fires while the sleeper is on its way to park.
  TEST_CASE("a fiber that is readied before it has parked is not lost") {
    // ready() comes from an outside thread while the fiber is on its way to park.
    in_runtime({.workers = {1, 2}}, [](vigil::runtime& rt) {
      const vigil::work_guard outside = rt.make_work_guard();
      auto& self = *vigil::detail::current_fiber();
      std::atomic<ticket> open{0};
      std::atomic<bool> done{false};
      std::thread giver([&] {
        ticket last = 0;
        while (!done.load()) {
          const ticket t = open.load();
          if (t == last) {
            std::this_thread::yield();
            continue;
          }
          last = t;
          if (self.own_waiter.claim(t, outcome::value)) self.own_waiter.deliver();
        }
      });
      for (int i = 0; i < rounds(5000); ++i) {
        const ticket t = self.own_waiter.open(true);
        open.store(t);
        REQUIRE(vigil::detail::wait(
                    self, t, vigil::detail::wait_reason::test, vigil::detail::no_limit, true) ==
                outcome::value);
      }
      done.store(true);
      giver.join();
    });
  }

  TEST_CASE("a wait may be ended before the fiber is off its stack") {
    in_runtime({.workers = {1, 2}}, [] {
      vigil::detail::spinlock lock{vigil::detail::lock_rank::fiber_join};
      vigil::detail::waiter* who = nullptr;
      ticket which = 0;
      std::atomic<bool> done{false};
      auto giver = vigil::spawn([&] {
        while (!done.load()) {
          waiter* found = nullptr;
          {
            const vigil::detail::lock_guard guard(lock);
            if (who != nullptr && who->claim(which, outcome::value)) found = who;
            who = nullptr;
          }
          if (found != nullptr) found->deliver();
          vigil::this_fiber::yield();
        }
      });
      auto& self = *vigil::detail::current_fiber();
      repeat(rounds(10'000), [&](int) {
        lock.lock();
        const ticket opened = self.own_waiter.open(true);
        which = opened;
        who = &self.own_waiter;
        lock.unlock();
        REQUIRE(
            vigil::detail::wait(
                self, opened, vigil::detail::wait_reason::test, vigil::detail::no_limit, true) ==
            outcome::value);
      });
      done.store(true);
      giver.join();
    });
  }
}
