#include "core/sync/mutex.hpp"

#include "core/sync/lock_watch.hpp"
#include "core/sync/sync_test.hpp"
#include "support/child.hpp"

#include <vigil/cases.hpp>

#include <algorithm>
#include <mutex>
#include <optional>

using namespace vigil::testing_support;
using vigil::mutex;

namespace {

static_assert(!std::is_copy_constructible_v<mutex> && !std::is_move_constructible_v<mutex>);
static_assert(std::is_nothrow_default_constructible_v<mutex>);
static_assert(std::is_trivially_destructible_v<mutex>);

constinit mutex of_the_program;  // needs no constructor at run time

}  // namespace

TEST_SUITE("mutex") {
  TEST_CASE("keeps the others out for as long as it is held, across sleeps and yields") {
    for_each_seed(20, [] {
      mutex m;
      int inside = 0;
      int sum = 0;
      crowd all;
      for (int i = 0; i < 8; ++i) {
        all.add([&] {
          for (int n = 0; n < 5; ++n) {
            const std::lock_guard lock(m);
            CHECK(++inside == 1);
            n % 2 == 0 ? vigil::this_fiber::yield() : sleep_for(1ms);
            ++sum;
            --inside;
          }
        });
      }
      all.join();
      CHECK(sum == 40);
    });
  }

  // Go: Mutex: HammerMutex, TryLock.
  TEST_CASE("fibers of several workers and plain threads exclude each other") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      mutex m;
      long sum = 0;
      const int each = rounds(20'000);
      const auto work = [&] {
        for (int i = 0; i < each; ++i) {
          const std::lock_guard lock(m);
          ++sum;
        }
      };
      crowd all;
      for (int i = 0; i < 8; ++i)
        all.add(work);
      std::thread a(work);
      std::thread b(work);
      all.join();
      a.join();
      b.join();
      CHECK(sum == 10L * each);
    });
  }

  TEST_CASE("excludes plain threads without any runtime") {
    long sum = 0;
    const int each = rounds(100'000);
    const auto work = [&] {
      for (int i = 0; i < each; ++i) {
        const std::lock_guard lock(of_the_program);
        ++sum;
      }
    };
    std::thread a(work);
    std::thread b(work);
    std::thread c(work);
    a.join();
    b.join();
    c.join();
    CHECK(sum == 3L * each);
  }

  TEST_CASE("waiters get it in the order of arrival") {
    for_each_seed(20, [] {
      mutex m;
      m.lock();
      std::vector<int> order;
      crowd all;
      for (int i = 0; i < 6; ++i) {
        all.add([&, i] {
          const std::lock_guard lock(m);
          order.push_back(i);
        });
        settle();
      }
      m.unlock();
      all.join();
      CHECK(order == std::vector{0, 1, 2, 3, 4, 5});
    });
  }

  // Go: Mutex: TestMutexFairness.
  TEST_CASE("is reserved after a wait of a millisecond, although the owner comes back at once") {
    in_virtual([] {
      mutex m;
      m.lock();
      std::optional<clock::time_point> had;
      auto patient = spawn([&] {
        const std::lock_guard lock(m);
        had = clock::now();
      });
      settle();
      const auto start = clock::now();
      // Never free for any length of time.
      for (int i = 0; i < 10; ++i) {
        sleep_for(400us);
        m.unlock();
        m.lock();
      }
      m.unlock();
      patient.join();
      REQUIRE(had.has_value());
      CHECK(*had - start == 1200us);
    });
  }

  TEST_CASE("is reserved for a waiter overtaken a thousand times, in no time at all") {
    in_virtual([] {
      mutex m;
      m.lock();
      bool had = false;
      auto waiting = spawn([&] {
        const std::lock_guard lock(m);
        had = true;
      });
      settle();
      int rounds_until = 0;
      while (!had && rounds_until < 10'000) {
        m.unlock();
        m.lock();
        ++rounds_until;
      }
      m.unlock();
      waiting.join();
      CHECK(rounds_until > 1);
      CHECK(rounds_until < 2'000);
    });
  }

  // Go: Mutex: TestMutexFairness.
  TEST_CASE("a fiber gets it ten times beside another one that nearly always holds it") {
    in_runtime({.workers = {1, 2}, .settings = {}}, [] {
      mutex m;
      std::atomic<bool> stop{false};
      auto greedy = spawn([&] {
        while (!stop.load()) {
          const std::lock_guard lock(m);
          sleep_for(100us);
        }
      });
      std::chrono::nanoseconds longest{0};
      for (int i = 0; i < 10; ++i) {
        sleep_for(100us);
        const auto asked = vigil::clock::now();
        const std::lock_guard lock(m);
        longest = std::max(longest, since(asked));
      }
      stop.store(true);
      greedy.join();
      MESSAGE("the longest wait: ", longest / 1us, " us");  // a failure is a hang
    });
  }

  TEST_CASE("try_lock takes it if it is free and never waits") {
    in_virtual([] {
      mutex m;
      CHECK(m.try_lock());
      CHECK_FALSE(m.try_lock());
      auto other = spawn([&] { CHECK_FALSE(m.try_lock()); });
      other.join();
      m.unlock();
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("works with unique_lock, scoped_lock of several and std::lock") {
    for_each_seed(10, [] {
      mutex a;
      mutex b;
      int both = 0;
      crowd all;
      for (int i = 0; i < 6; ++i) {
        all.add([&, i] {
          for (int n = 0; n < 4; ++n) {
            if (i % 2 == 0) {
              const std::scoped_lock lock(a, b);
              vigil::this_fiber::yield();
              ++both;
            } else {
              const std::scoped_lock lock(b, a);
              sleep_for(1us);
              ++both;
            }
          }
        });
      }
      all.join();
      CHECK(both == 24);
      std::unique_lock held(a, 1ms);
      CHECK(held.owns_lock());
      std::unique_lock late(a, std::defer_lock);
      CHECK_FALSE(late.try_lock());
      CHECK_FALSE(late.try_lock_for(1ms));
      CHECK_FALSE(late.try_lock_until(clock::now() + 1ms));
    });
  }

  TEST_CASE("may be unlocked by another fiber and by a plain thread") {
    in_runtime({}, [] {
      mutex m;
      m.lock();
      spawn([&] { m.unlock(); }).join();
      m.lock();
      std::thread([&] { m.unlock(); }).join();
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  // Go: Mutex: TestMutexMisuse.
  TEST_CASE("unlock of an unlocked one throws and changes nothing") {
    mutex m;
    CHECK(holds(text_of<std::logic_error>([&] { m.unlock(); }), "not locked"));
    CHECK(m.try_lock());
    CHECK_FALSE(m.try_lock());
    m.unlock();
    CHECK_THROWS_AS(m.unlock(), std::logic_error);
    CHECK(m.try_lock());
    m.unlock();
  }

  TEST_CASE("may be destroyed by its last owner, while the unlock before returns") {
    in_runtime({.workers = {2}, .settings = {}}, [] {
      for (int i = 0; i < rounds(2'000); ++i) {
        auto* const m = new mutex;
        m->lock();
        auto other = spawn([m] {
          m->lock();
          m->unlock();
          delete m;
        });
        if (i % 2 == 0) vigil::this_fiber::yield();
        m->unlock();
        other.join();
      }
    });
  }

  // Go: Mutex: HammerMutex, TryLock.
  TEST_CASE("random holders with deadlines: each gets it or gives up, and it is free at the end") {
    in_runtime({}, [] {
      const auto threads_act = vigil::runtime::current().make_work_guard();
      mutex m;
      long inside = 0;
      std::atomic<long> had{0};
      std::atomic<long> gave_up{0};
      const auto work = [&](std::uint64_t seed) {
        seeded dice(seed);
        for (int i = 0; i < rounds(2'000); ++i) {
          bool mine = true;
          switch (dice.below(4)) {
            case 0:
              m.lock();
              break;
            case 1:
              mine = m.try_lock();
              break;
            default:
              mine = m.try_lock_for(std::chrono::microseconds(dice.below(30)));
          }
          if (!mine) {
            gave_up.fetch_add(1);
            continue;
          }
          had.fetch_add(1);
          CHECK(++inside == 1);
          if (dice.below(8) == 0 && vigil::this_fiber::id() != 0) vigil::this_fiber::yield();
          --inside;
          m.unlock();
        }
      };
      crowd all;
      for (std::uint64_t i = 0; i < 6; ++i)
        all.add([&, i] { work(i + 1); });
      std::thread outside([&] { work(100); });
      all.join();
      outside.join();
      CHECK(had + gave_up == 7 * rounds(2'000));
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("while locks are watched none is taken without the library, in whatever state") {
    using watch = vigil::detail::lock_watch;
    const auto all_states = [](auto& m, auto& holder) {
      const auto is_noted = [&] { return holder.load() != 0; };
      for (int i = 0; i < 200; ++i) {  // new, free, and due
        if (i % 3 == 0) {
          REQUIRE(m.try_lock());
        } else {
          m.lock();
        }
        REQUIRE(is_noted());
        m.unlock();
        REQUIRE_FALSE(is_noted());
      }
    };
    mutex m;
    vigil::shared_mutex s;
    const std::uint32_t before = vigil::detail::locks_are_watched.load();
    vigil::detail::watch_locks(watch::notes_holders);
    all_states(m, vigil::detail::core_access::of(m).holder);
    all_states(s, vigil::detail::core_access::of(s).holder);
    vigil::detail::change_lock_watch([&](std::uint32_t) { return before & ~watch::any; });
    CHECK(vigil::detail::locks_are_watched.load() == before);
  }

  TEST_CASE("locks are watched until the last reason is gone") {
    using watch = vigil::detail::lock_watch;
    const std::uint32_t before = vigil::detail::locks_are_watched.load();
    const auto add = [](std::uint32_t n) { return n + watch::virtual_run; };
    const auto remove = [](std::uint32_t n) { return n - watch::virtual_run; };
    vigil::detail::change_lock_watch(add);
    vigil::detail::change_lock_watch(add);
    vigil::detail::change_lock_watch(remove);
    CHECK(vigil::detail::is_each_lock_watched());
    CHECK((vigil::detail::free_lock_word() & watch::any) != 0);
    vigil::detail::change_lock_watch(remove);
    CHECK(vigil::detail::locks_are_watched.load() == before);
  }
}
