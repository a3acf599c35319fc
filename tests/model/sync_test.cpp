// The mutex: one holder at a time, no waiter is forgotten, and the last touch (MU1 to MU4
// of mutex.cpp). Conditions and counters: no notification is lost, each reaches one
// waiter.
#include "core/sync/mutex.hpp"
#include "instants.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/cases.hpp>
#include <vigil/sync.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using programs::brief;
using programs::run_with_outside_work;

namespace {

// Repeated looks are a matter of speed; a wait that gives up by itself is explored with
// only some of its possible crossings.
void look_once() {
  vigil::detail::mutex_looks.store(0, std::memory_order_relaxed);
}

enum class leaves : std::uint8_t { free, due };

// Each thread locks it so many times; `overtakes`: how often a woken waiter may be
// overtaken. `each`: what an unlock leaves that has no waiters.
auto in_turn(std::vector<int> threads, unsigned overtakes = 1024, leaves each = leaves::free) {
  return [threads, overtakes, each] {
    look_once();
    vigil::detail::mutex_overtakes.store(overtakes, std::memory_order_relaxed);
    vigil::mutex m;
    int count = 0;
    const auto work = [&](int times) {
      for (int i = 0; i < times; ++i) {
        m.lock();
        ++count;  // a data race if two threads are inside
        if (each == leaves::due) vigil::detail::core_access::of(m).until_due = 0;
        m.unlock();
      }
    };
    if (each == leaves::due) {
      work(1);  // it is no new one any more
      count = 0;
    }
    std::vector<std::thread> others;
    int sum = threads.front();
    for (std::size_t i = 1; i < threads.size(); ++i) {
      others.emplace_back(work, threads[i]);
      sum += threads[i];
    }
    work(threads.front());
    for (std::thread& t : others)
      t.join();
    model::require(count == sum, "each was inside");
    model::require(m.try_lock(), "it is free at the end");
    m.unlock();
  };
}

}  // namespace

TEST_CASE("mutex: two threads are never inside together, and both come in") {
  prove("mutex: two threads", in_turn({1, 1}), also::unbounded);
  prove("mutex: two threads, twice and once", in_turn({2, 1}));
  prove("mutex: two threads, twice each", in_turn({2, 2}));
}

TEST_CASE("mutex: three threads, some overtaken on their way") {
  prove("mutex: three threads", in_turn({1, 1, 1}));
  prove("mutex: three threads, nobody is overtaken", in_turn({1, 1, 1}, 0));
  prove("mutex: two threads, three times and once", in_turn({3, 1}));
  prove("mutex: two threads, three times and once, overtaken once", in_turn({3, 1}, 1));
}

TEST_CASE("mutex: each unlock leaves it due") {
  prove("mutex: two threads, due", in_turn({1, 1}, 1024, leaves::due), also::unbounded);
  prove("mutex: two threads, twice and once, due", in_turn({2, 1}, 1024, leaves::due));
  prove("mutex: three threads, due", in_turn({1, 1, 1}, 1024, leaves::due));
  prove("mutex: three threads, due, nobody is overtaken", in_turn({1, 1, 1}, 0, leaves::due));
}

TEST_CASE("shared_mutex: each unlock leaves it due") {
  prove("shared_mutex: a writer and two readers, due", [] {
    vigil::shared_mutex m;
    int value = 0;
    const auto is_due = [&] {
      vigil::detail::core_access::of(m).until_due.store(0, std::memory_order_relaxed);
    };
    m.lock();
    is_due();
    m.unlock();
    std::thread reader([&] {
      m.lock_shared();
      model::require(value == 0 || value == 1, "the writer is not inside");
      is_due();
      m.unlock_shared();
    });
    std::thread writer([&] {
      m.lock();
      ++value;
      is_due();
      m.unlock();
    });
    m.lock_shared();
    model::require(value == 0 || value == 1, "the writer is not inside");
    is_due();
    m.unlock_shared();
    reader.join();
    writer.join();
    model::require(m.try_lock(), "it is free at the end");
    m.unlock();
  });
}

TEST_CASE("mutex: a thread that gives up has nothing, leaves nothing, and blocks no other") {
  model::take_outcomes();
  prove("mutex: try_lock_for against unlock", [] {
    look_once();
    vigil::mutex m;
    int count = 0;
    m.lock();
    bool had = false;
    std::thread other([&] {
      had = m.try_lock_for(brief);
      if (!had) return;
      ++count;
      m.unlock();
    });
    ++count;
    m.unlock();
    other.join();
    model::note_outcome(had ? "had" : "gave up");
    model::require(m.try_lock(), "it is free at the end");
    m.unlock();
  });
  expect_outcomes({"had", "gave up"});
  prove("mutex: try_lock_for and lock against unlock", [] {
    look_once();
    vigil::mutex m;
    int count = 0;
    m.lock();
    std::thread timed([&] {
      if (!m.try_lock_for(brief)) return;
      ++count;
      m.unlock();
    });
    std::thread other([&] {
      m.lock();
      ++count;
      m.unlock();
    });
    ++count;
    m.unlock();
    timed.join();
    other.join();
    model::require(m.try_lock(), "it is free at the end");
    m.unlock();
  });
}

TEST_CASE("mutex: the next owner may destroy it while the unlock before returns") {
  prove("mutex: unlock against lock, unlock, delete", [] {
    look_once();
    auto* const m = new vigil::mutex;
    m->lock();
    std::thread other([m] {
      m->lock();
      m->unlock();
      delete m;
    });
    m->unlock();
    other.join();
  });
}

TEST_CASE("mutex: a fiber that waits is woken by a thread's unlock") {
  prove("mutex: a fiber's lock, a thread's unlock", [] {
    run_with_outside_work(1, [] {
      look_once();
      vigil::mutex m;
      int count = 0;
      m.lock();
      const model::window w;
      std::thread other([&] {
        ++count;
        m.unlock();
      });
      m.lock();
      ++count;
      m.unlock();
      other.join();
      model::enough();
    });
  });
}

TEST_CASE("shared_mutex: readers and writers, some of which give up") {
  prove("shared_mutex: a writer and two readers", [] {
    vigil::shared_mutex m;
    int value = 0;
    const auto read = [&] {
      m.lock_shared();
      model::require(value == 0 || value == 1, "one of the two");
      m.unlock_shared();
    };
    std::thread a(read);
    std::thread b(read);
    m.lock();
    ++value;
    m.unlock();
    a.join();
    b.join();
    model::require(m.try_lock(), "it is free at the end");
    m.unlock();
  });
  prove("shared_mutex: a reader, a writer in a hurry, a reader", [] {
    vigil::shared_mutex m;
    int value = 0;
    m.lock_shared();
    std::thread writer([&] {
      if (!m.try_lock_for(brief)) return;
      ++value;
      m.unlock();
    });
    std::thread reader([&] {
      m.lock_shared();
      model::require(value == 0 || value == 1, "one of the two");
      m.unlock_shared();
    });
    m.unlock_shared();
    writer.join();
    reader.join();
    model::require(m.try_lock(), "it is free at the end");
    m.unlock();
  });
  prove("shared_mutex: unlock_shared against lock, unlock, delete", [] {
    auto* const m = new vigil::shared_mutex;
    m->lock_shared();
    std::thread other([m] {
      m->lock();
      m->unlock();
      delete m;
    });
    m->unlock_shared();
    other.join();
  });
}

TEST_CASE("condition: a change under the mutex is never missed") {
  prove("condition: wait against notify_one", [] {
    look_once();
    vigil::mutex m;
    vigil::condition_variable c;
    bool ready = false;
    std::thread other([&] {
      {
        const std::lock_guard lock(m);
        ready = true;
      }
      c.notify_one();
    });
    {
      std::unique_lock lock(m);
      c.wait(lock, [&] { return ready; });
    }
    other.join();
  });
}

TEST_CASE("condition: a notification goes to one waiter, even beside one whose deadline comes") {
  model::take_outcomes();
  prove("condition: wait_for against notify_one", [] {
    look_once();
    vigil::mutex m;
    vigil::condition_variable c;
    bool ready = false;
    std::thread other([&] {
      const std::lock_guard lock(m);
      ready = true;
      c.notify_one();
    });
    bool notified = false;
    {
      std::unique_lock lock(m);
      if (!ready) {
        notified = c.wait_for(lock, brief);
        model::require(!notified || ready, "notified after the change");
        model::note_outcome(notified ? "notified" : "timeout");
      }
    }
    other.join();
  });
  expect_outcomes({"notified", "timeout"});
}

// Go: WaitGroup: writes before Done visible after Wait.
TEST_CASE("wait_group: a write before done is seen, and the group may go after the wait") {
  prove("wait_group: two done against wait, delete", [] {
    auto group = std::make_unique<vigil::wait_group>();
    int a = 0;
    int b = 0;
    group->add(2);
    std::thread first([&a, g = group.get()] {
      a = 1;
      g->done();
    });
    std::thread second([&b, g = group.get()] {
      b = 1;
      g->done();
    });
    group->wait();
    group.reset();
    model::require(a + b == 2, "both are done");
    first.join();
    second.join();
  });
}

TEST_CASE("semaphore: permits are handed on, and none is lost by a waiter that gives up") {
  model::take_outcomes();
  prove("semaphore: try_acquire_for of two and acquire of one against release", [] {
    vigil::semaphore s(1);
    bool had_two = false;
    std::thread two([&] {
      had_two = s.try_acquire_for(brief, 2);
      if (had_two) s.release(2);
    });
    std::thread one([&] {
      s.acquire();
      s.release();
    });
    s.release();
    two.join();
    one.join();
    model::note_outcome(had_two ? "had" : "gave up");
    model::require(s.available() == 2, "all are back");
  });
  expect_outcomes({"had", "gave up"});
}

TEST_CASE("once: one of two runs it, and both see its effect") {
  prove("once: two callers", [] {
    vigil::once o;
    int runs = 0;
    std::thread other([&] {
      o.call([&] { ++runs; });
      model::require(runs == 1, "it has run");
    });
    o.call([&] { ++runs; });
    model::require(runs == 1, "it has run");
    other.join();
  });
}
