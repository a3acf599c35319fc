#include "core/idle_timeouts/idle_timeouts_test.hpp"
#include "core/time/timer_stress.hpp"

#include <thread>

using namespace vigil::testing_support;

namespace {

struct hammered {
  entry idle;
  // The latest time for which a touch or an add has returned true.
  std::atomic<std::int64_t> promised{0};
  std::atomic<int> added{0};
  std::atomic<int> expired{0};
  std::atomic<int> removed{0};
  std::atomic<bool> is_removed{false};  // no on_expire may run
};

std::int64_t count_of(instant t) {
  return t.time_since_epoch().count();
}

void raise(std::atomic<std::int64_t>& to, std::int64_t value) {
  std::int64_t seen = to.load();
  while (seen < value && !to.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

TEST_SUITE("timeout_list on threads") {
  // No expiry is early, lost, or after a removal. The threads touch in bursts, with
  // pauses in which some entries become due, so a touch often meets an expiry.
  TEST_CASE("touched by four threads while it expires, entries are added and removed") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      constexpr nanoseconds d = 200us;
      constexpr std::size_t n = 64;
      std::deque<hammered> all(n);
      std::atomic<int> early{0};
      std::atomic<int> after_removal{0};
      std::atomic<int> among_touches{0};
      std::atomic<bool> is_over{false};
      std::optional<timeout_list> l;
      l.emplace(d, [&](entry& e) {
        hammered& h = vigil::owner_of<&hammered::idle>(e);
        if (h.is_removed.load()) after_removal.fetch_add(1);
        if (count_of(now()) < h.promised.load() + d.count()) early.fetch_add(1);
        h.expired.fetch_add(1);
        if (!is_over.load()) among_touches.fetch_add(1);
      });
      std::vector<std::unique_ptr<plain_thread>> touching;
      for (std::uint64_t t = 0; t < 4; ++t) {
        touching.push_back(std::make_unique<plain_thread>([&, t] {
          seeded dice(t + 1);
          while (!is_over.load()) {
            hammered& h = all[dice.below(n)];
            const instant time = now();
            if (h.idle.touch(time)) raise(h.promised, count_of(time));
            // Real time: blocks on purpose, so that entries expire in between; the case
            // holds at any pace.
            if (dice.below(64) == 0) std::this_thread::sleep_for(300us);
          }
        }));
      }
      // One fiber adds and removes each entry; they share the list.
      in_fibers(4, [&](int f) {
        seeded dice(static_cast<std::uint64_t>(f) + 100);
        const int turns = rounds(2000);
        const int wanted = rounds(2000);
        const instant start = now();
        const auto goes_on = [&](int k) {
          return k < turns || (among_touches.load() < wanted && since(start) < 10min);
        };
        for (int k = 0; goes_on(k); ++k) {
          hammered& h = all[dice.below(n / 4) * 4 + static_cast<std::size_t>(f)];
          if (dice.below(2) == 0) {
            if (!h.idle.is_linked()) {
              timeout_list::remove(h.idle);  // until its on_expire has ended
              h.is_removed.store(false);
              h.promised.store(count_of(now()));
              h.added.fetch_add(1);
              l->add(h.idle);
            }
          } else {
            if (timeout_list::remove(h.idle)) h.removed.fetch_add(1);
            h.is_removed.store(true);
          }
          if (dice.below(8) == 0) sleep_for(nanoseconds(dice.below(400'000)));
        }
      });
      is_over.store(true);
      for (auto& t : touching)
        t->join();
      // Entries that nobody touches any more expire.
      while (l->size() != 0)
        sleep_for(1ms);
      l.reset();
      CHECK(among_touches.load() >= rounds(2000));
      CHECK(early.load() == 0);
      CHECK(after_removal.load() == 0);
      for (const hammered& h : all) {
        CHECK(h.added.load() == h.expired.load() + h.removed.load());
        CHECK_FALSE(h.idle.is_linked());
      }
    });
  }

  TEST_CASE("entries move between expiring lists, and are destroyed, on four fibers") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      std::atomic<int> calls{0};
      const auto count = [&](entry&) { calls.fetch_add(1); };
      timeout_list a(50us, count);
      timeout_list b(70us, count);
      timeout_lists many(count);
      in_fibers(4, [&](int f) {
        seeded dice(static_cast<std::uint64_t>(f) + 1);
        std::vector<std::unique_ptr<connection>> own(20);
        const int turns = rounds(3000);
        for (int k = 0; k < turns; ++k) {
          auto& c = own[dice.below(20)];
          if (c == nullptr) c = std::make_unique<connection>();
          switch (dice.below(6)) {
            case 0:
              a.add(c->idle);
              break;
            case 1:
              b.add(c->idle);
              break;
            case 2:
              many.add(c->idle, std::chrono::microseconds(10 + dice.below(20)));
              break;
            case 3:
              timeout_list::remove(c->idle);
              break;
            case 4:
              c.reset();
              break;
            case 5:
              sleep_for(nanoseconds(dice.below(100'000)));
              break;
          }
        }
      });
      CHECK(a.size() == 0);
      CHECK(b.size() == 0);
      CHECK(many.size() == 0);
    });
  }

  // A list is destroyed together with its entries: a latecomer finds the same memory with
  // another list in it, or none.
  TEST_CASE("lists and entries are destroyed at the same moment on different fibers") {
    in_runtime({.workers = {2, 4}}, [] {
      const int turns = rounds(1000);
      for (int k = 0; k < turns; ++k) {
        auto l = std::make_unique<timeout_list>(20us, [](entry&) {});
        std::vector<std::unique_ptr<connection>> c(8);
        for (auto& each : c) {
          each = std::make_unique<connection>();
          l->add(each->idle);
        }
        auto list_goes = vigil::spawn([&] { l.reset(); });
        auto entries_go = vigil::spawn([&] { c.clear(); });
        list_goes.join();
        entries_go.join();
      }
    });
  }

  // With assertions on, the lock order is checked.
  TEST_CASE("a plain thread adds and removes while a program waits until all is done") {
    for (const unsigned workers : {1U, 2U}) {
      vigil::options o;
      o.workers = workers;
      o.exit = vigil::exit_when::all_done;
      vigil::runtime rt(o);
      std::optional<timeout_list> l;
      connection c;
      std::thread outside;
      rt.run([&] {
        l.emplace(1h, [](entry&) {});
        outside = std::thread([&, guard = rt.make_work_guard()] {
          for (int i = 0; i < rounds(2000); ++i) {
            l->add(c.idle);
            CHECK(timeout_list::remove(c.idle));
          }
        });
      });
      outside.join();
      CHECK(l->size() == 0);
    }
  }

  TEST_CASE("plain threads add, touch, remove and wait for an on_expire") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<bool> is_inside{false};
      std::atomic<bool> has_ended{false};
      timeout_list l(1ms, [&](entry&) {
        is_inside.store(true);
        sleep_for(2ms);
        has_ended.store(true);
      });
      connection c;
      plain_thread t([&] {
        const instant added = now();
        l.add(c.idle);
        // False only if the thread has lost its processor until the entry was due.
        CHECK((c.idle.touch(added) || now() >= added + 1ms));
        while (!is_inside.load())
          std::this_thread::yield();
        CHECK(now() >= added + 1ms);
        CHECK_FALSE(timeout_list::remove(c.idle));
        CHECK(has_ended.load());
      });
      t.join();
    });
  }

  TEST_CASE("a plain thread adds as runs end, and no entry outlives one") {
    vigil::options o;
    o.workers = 2;
    o.dump_on_sigquit = false;
    vigil::runtime rt(o);
    std::optional<timeout_list> l;
    connection c;
    rt.run([&] { l.emplace(1ms, [](entry&) {}); });
    std::atomic<bool> is_over{false};
    std::thread outside([&] {
      while (!is_over.load()) {
        try {
          l->add(c.idle);
        } catch (const vigil::runtime_gone&) {
          CHECK_FALSE(c.idle.is_linked());
        }
      }
    });
    for (int i = 0; i < rounds(500); ++i) {
      rt.run([] { sleep_for(10us); });
      CHECK(l->size() == 0);
      CHECK_FALSE(c.idle.is_linked());
    }
    is_over.store(true);
    outside.join();
  }
}
