// Cases of a select for what is not a channel: exactly one is taken, a lock has one owner
// at a time even if an unlock hands it to a select (MU5 of mutex.cpp), and a case that
// leaves a queue lets those behind it have their turn.
#include "core/sync/mutex.hpp"
#include "instants.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

using programs::brief;
using programs::let_the_other_rest;
using programs::run_with_outside_work;
using programs::workers;
using vigil::on_acquire;
using vigil::on_join;
using vigil::on_lock;
using vigil::on_lock_shared;
using vigil::on_next;
using vigil::on_recv;
using vigil::on_timeout;
using vigil::on_wait;
using vigil::select_ordered;

namespace {

void look_once() {
  vigil::detail::mutex_looks.store(0, std::memory_order_relaxed);
}

template <class Mutex>
void require_free(Mutex& m) {
  model::require(m.try_lock(), "it is free at the end");
  m.unlock();
}

}  // namespace

TEST_CASE("cases: a select and lock() are never inside a mutex together") {
  model::take_outcomes();
  prove("cases: a select for a mutex and a lock", [] {
    look_once();
    vigil::mutex m;
    int count = 0;
    m.lock();
    std::thread selects([&] {
      select_ordered(on_lock(m));
      ++count;  // a data race if two threads are inside
      m.unlock();
    });
    std::thread locks([&] {
      const std::lock_guard own(m);
      ++count;
    });
    ++count;
    m.unlock();
    selects.join();
    locks.join();
    model::require(count == 3, "each was inside");
    require_free(m);
  });
  prove("cases: a select for a mutex that gives up", [] {
    look_once();
    vigil::mutex m;
    int count = 0;
    m.lock();
    std::thread selects([&] {
      const bool taken = select_ordered(on_lock(m), on_timeout(brief)) == 0;
      model::note_outcome(taken ? "taken" : "timeout");
      if (!taken) return;
      ++count;
      m.unlock();
    });
    ++count;
    m.unlock();
    m.lock();
    ++count;
    m.unlock();
    selects.join();
    require_free(m);
  });
  expect_outcomes({"taken", "timeout"});
}

TEST_CASE("cases: two selects over two mutexes") {
  prove("cases: two selects over two mutexes", [] {
    look_once();
    vigil::mutex a;
    vigil::mutex b;
    int in_a = 0;
    int in_b = 0;
    const auto use = [](vigil::mutex& m, int& inside) {
      ++inside;
      m.unlock();
    };
    a.lock();
    b.lock();
    std::thread other([&] {
      select_ordered(on_lock(b, [&] { use(b, in_b); }), on_lock(a, [&] { use(a, in_a); }));
    });
    b.unlock();
    a.unlock();
    select_ordered(on_lock(a, [&] { use(a, in_a); }), on_lock(b, [&] { use(b, in_b); }));
    other.join();
    model::require(in_a + in_b == 2, "each has one");
    require_free(a);
    require_free(b);
  });
}

TEST_CASE("cases: a mutex or a value, never both") {
  model::take_outcomes();
  prove("cases: a mutex and a channel", [] {
    look_once();
    vigil::mutex m;
    const auto c = vigil::make_channel<int>();
    bool sent = false;
    m.lock();
    std::thread sends([&] { sent = static_cast<bool>(c.try_send(1)); });
    std::thread unlocks([&] { m.unlock(); });
    bool got = false;
    bool has_lock = false;
    select_ordered(on_recv(c, [&](std::optional<int>) { got = true; }),
                   on_lock(m, [&] { has_lock = true; }));
    sends.join();
    unlocks.join();
    model::require(got != has_lock, "one of them");
    model::require(got == sent, "what was sent has come");
    model::note_outcome(got ? "a value" : "the mutex");
    if (has_lock) m.unlock();
    require_free(m);
  });
  expect_outcomes({"a value", "the mutex"});
}

// The writer's case is queued while a reader is inside, the reader's case behind it, and
// then the mutex turns out to be free: the writer's case leaves, and lets others in.
TEST_CASE("cases: a case that is taken while the others are being queued") {
  prove("cases: to write, to read, a mutex", [] {
    look_once();
    vigil::shared_mutex s;
    vigil::mutex m;
    s.lock();
    m.lock();
    std::thread other([&] {
      s.unlock();
      s.lock_shared();
      m.unlock();
      s.unlock_shared();
    });
    switch (select_ordered(on_lock(s), on_lock_shared(s), on_lock(m))) {
      case 0:
        s.unlock();
        break;
      case 1:
        s.unlock_shared();
        break;
      default:
        m.unlock();
    }
    other.join();
    require_free(s);
    require_free(m);
  });
}

TEST_CASE("cases: permits are handed on by a select that gives up") {
  model::take_outcomes();
  prove("cases: a select for two permits and acquire of one against release", [] {
    vigil::semaphore s(1);
    bool had_two = false;
    std::thread two([&] {
      had_two = select_ordered(on_acquire(s, 2), on_timeout(brief)) == 0;
      if (had_two) s.release(2);
    });
    std::thread one([&] {
      s.acquire();
      s.release();
    });
    two.join();
    one.join();
    model::note_outcome(had_two ? "had" : "gave up");
    s.release();
    model::require(s.available() == 2, "all are back");
  });
  expect_outcomes({"gave up"});
}

TEST_CASE("cases: a count that comes to zero, and the latch goes at once") {
  prove("cases: a latch or a timeout", [] {
    auto l = std::make_unique<vigil::latch>(1);
    bool done = false;
    std::thread counts([&] {
      done = true;
      l->count_down();
    });
    const bool zero = select_ordered(on_wait(*l), on_timeout(brief)) == 0;
    if (zero) {
      model::require(done, "what was done before is seen");
      l.reset();
    }
    counts.join();
  });
}

TEST_CASE("cases: a fiber's end or a value, and the handle stays or is taken") {
  model::take_outcomes();
  prove("cases: a join and a channel", [] {
    run_with_outside_work(2, [] {
      const auto c = vigil::make_channel<int>();
      std::atomic<bool> may_end{false};
      std::atomic<bool> has_begun{false};
      auto f = vigil::spawn([&] {
        has_begun.store(true);
        programs::busy_until(may_end);
        return 3;
      });
      programs::busy_until(has_begun);
      bool sent = false;
      int joined = 0;
      bool got = false;
      {
        const model::window looked_at;
        std::thread sends([&] { sent = static_cast<bool>(c.try_send(1)); });
        may_end.store(true);
        select_ordered(on_join(f, [&](int r) { joined = r; }),
                       on_recv(c, [&](std::optional<int>) { got = true; }));
        sends.join();
      }
      model::require(got == sent, "what was sent has come");
      model::require(got != (joined == 3), "one of them");
      model::note_outcome(got ? "a value" : "the end");
      if (got) joined = f.join();
      model::require(joined == 3, "the result is there");
    });
  });
  expect_outcomes({"a value", "the end"});
}

TEST_CASE("cases: a result or a timeout, and no result is lost") {
  model::take_outcomes();
  prove("cases: a result of a group", [] {
    run_with_outside_work(2, [] {
      vigil::group_of<int> g;
      let_the_other_rest();
      bool had = false;
      {
        const model::window looked_at;
        g.go([] { return 3; });
        had = select_ordered(on_next(g), on_timeout(brief)) == 0;
        model::note_outcome(had ? "had" : "timeout");
        model::require(had || g.next() == 3, "the result waits");
        model::require(g.next() == std::nullopt, "there was one");
      }
    });
  });
  expect_outcomes({"had", "timeout"});
}

TEST_CASE("cases: nothing starts in a group that a select has seen the end of") {
  model::take_outcomes();
  prove("cases: the end of a group against a thread's go", [] {
    run_with_outside_work(2, [] {
      vigil::group g;
      std::atomic<bool> may_end{false};
      std::atomic<bool> has_begun{false};
      std::atomic<int> ended{0};
      g.go([&] {
        has_begun.store(true);
        programs::busy_until(may_end);
        ended.fetch_add(1);
      });
      programs::busy_until(has_begun);
      int at_end = 0;
      bool more = false;
      auto other = vigil::spawn([&] {
        may_end.store(true);
        try {
          g.go([&] { ended.fetch_add(1); });
          more = true;
        } catch (const std::logic_error&) {
        }
      });
      {
        const model::window looked_at;
        select_ordered(on_wait(g, [&] { at_end = ended.load(); }));
        other.join();
      }
      model::require(at_end == (more ? 2 : 1), "all that was started has ended");
      model::note_outcome(more ? "more" : "refused");
    });
  });
}
