// The run queue: each fiber is taken exactly once, by the owner or by a thief.
#include "core/sched/queue/run_queue.hpp"

#include "core/sched/wait/note.hpp"
#include "prove.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

using vigil::detail::fiber;
using vigil::detail::never;
using vigil::detail::note;
using vigil::detail::run_queue;

namespace {

// The queue never looks into a fiber, so anything with an address will do. Its fields are
// plain: the thread that takes an item must know everything written before the push, and
// must be the only one that has it.
struct item {
  int written = 0;
  int taken = 0;

  fiber& as_fiber() noexcept { return *reinterpret_cast<fiber*>(this); }
};

void push(run_queue& q, item& i) {
  i.written = 7;
  model::require(q.push(i.as_fiber()), "there is room");
}

int take(fiber* f) {
  if (f == nullptr) return 0;
  auto* const i = reinterpret_cast<item*>(f);
  model::require(i->written == 7, "what was written before the push is seen");
  model::require(i->taken++ == 0, "taken once");
  return 1;
}

int grab(run_queue& q, std::uint32_t room) {
  fiber* into[run_queue::capacity / 2] = {};
  const std::uint32_t n = q.grab(into, room);
  for (std::uint32_t i = 0; i < n; ++i)
    take(into[i]);
  return static_cast<int>(n);
}

int pop_all(run_queue& q) {
  int n = 0;
  while (fiber* const f = q.pop())
    n += take(f);
  return n;
}

// --- queues that have a past. They lie in static memory, which is the same before each
// run, and are brought to their state before the first.

template <auto Head, auto Tail>
struct reach {
  friend void set_ends(run_queue& q, std::uint32_t to) {
    (q.*Head).store(to);
    (q.*Tail).store(to);
  }
};

void set_ends(run_queue& q, std::uint32_t to);
template struct reach<&run_queue::head_, &run_queue::tail_>;

}  // namespace

TEST_CASE("run queue: owner and thief take each fiber once") {
  prove(
      "run queue: owner and a thief",
      [] {
        const auto q = std::make_unique<run_queue>();
        const auto items = std::make_unique<item[]>(3);
        int stolen = 0;
        std::thread thief([&] {
          stolen += grab(*q, 128);
          stolen += grab(*q, 128);
        });
        push(*q, items[0]);
        push(*q, items[1]);
        int own = take(q->pop());
        push(*q, items[2]);
        own += pop_all(*q);
        thief.join();
        model::require(own + stolen == 3, "none is lost");
        model::require(q->empty(), "and none is left");
      },
      also::unbounded);
}

TEST_CASE("run queue: owner and two thieves take each fiber once") {
  prove("run queue: owner and two thieves", [] {
    const auto q = std::make_unique<run_queue>();
    const auto items = std::make_unique<item[]>(3);
    std::atomic<int> stolen{0};
    push(*q, items[0]);
    const auto steal = [&] { stolen.fetch_add(grab(*q, 128), std::memory_order_relaxed); };
    std::thread first(steal);
    std::thread second(steal);
    push(*q, items[1]);
    push(*q, items[2]);
    const int own = pop_all(*q);
    first.join();
    second.join();
    model::require(own + stolen.load() + pop_all(*q) == 3, "none is lost");
  });
}

TEST_CASE("run queue: the ring and its counters go round") {
  // The counters pass 2^32, and the ring its end, within three fibers.
  static run_queue q;
  set_ends(q, 0xffff'fffe);
  prove(
      "run queue: round the ring's end",
      [] {
        const auto items = std::make_unique<item[]>(4);
        push(q, items[0]);
        push(q, items[1]);
        int stolen = 0;
        std::thread thief([&] {
          stolen += grab(q, 128);
          stolen += grab(q, 128);
        });
        push(q, items[2]);
        const int own = take(q.pop());
        push(q, items[3]);
        thief.join();
        model::require(own + stolen + pop_all(q) == 4, "none is lost");
      },
      also::unbounded);
}

TEST_CASE("run queue: a full one takes no more until one has been taken") {
  static run_queue q;
  static item items[run_queue::capacity + 2];
  for (std::uint32_t i = 0; i < run_queue::capacity - 1; ++i) {
    items[i].written = 7;
    CHECK(q.push(items[i].as_fiber()));
  }
  prove(
      "run queue: full, a thief makes room",
      [] {
        int stolen = 0;
        std::thread thief([&] { stolen = grab(q, 2); });
        int pushed = 0;
        for (std::uint32_t i = run_queue::capacity - 1; i < run_queue::capacity + 2; ++i) {
          items[i].written = 7;
          if (q.push(items[i].as_fiber())) ++pushed;
        }
        model::require(pushed >= 1, "there was room for one");
        thief.join();
        model::require(stolen == 2, "the thief gets what it asked for");
        model::require(pushed <= 3, "and no more than there was room for");
        // The remaining items, in the order of the ring.
        std::uint32_t left = 0;
        while (fiber* const f = q.pop()) {
          take(f);
          ++left;
        }
        model::require(left + 2 == run_queue::capacity - 1 + static_cast<std::uint32_t>(pushed),
                       "none is lost");
      },
      also::unbounded);
}

TEST_CASE("run queue: a pusher sees the sleeper, or the sleeper sees the fiber") {
  // The idle protocol's half (IS1, IS2, IA1, IA2 of idle.hpp).
  prove(
      "run queue: last look before sleep",
      [] {
        const auto q = std::make_unique<run_queue>();
        const auto items = std::make_unique<item[]>(1);
        const auto n = std::make_unique<note>();
        std::atomic<bool> asleep{false};
        int stolen = 0;
        std::thread sleeper([&] {
          n->clear();
          asleep.store(true);
          if (q->empty()) n->sleep_until(never);
          stolen = grab(*q, 128);
        });
        push(*q, items[0]);
        if (asleep.load()) n->wake();
        sleeper.join();
        model::require(stolen == 1, "the fiber does not lie there");
      },
      also::unbounded);
  // The look is right even while a third thread takes: empty() is true only if it was at
  // that moment.
  prove(
      "run queue: last look, and another thief",
      [] {
        const auto q = std::make_unique<run_queue>();
        const auto items = std::make_unique<item[]>(2);
        const auto n = std::make_unique<note>();
        std::atomic<bool> asleep{false};
        int first = 0;
        int second = 0;
        push(*q, items[0]);
        std::thread other([&] { first = grab(*q, 1); });
        std::thread sleeper([&] {
          n->clear();
          asleep.store(true);
          if (q->empty()) n->sleep_until(never);
          second = grab(*q, 2);
        });
        push(*q, items[1]);
        if (asleep.load()) n->wake();
        other.join();
        sleeper.join();
        model::require(first + second + pop_all(*q) == 2, "none is lost");
      },
      also::unbounded);
}

TEST_CASE("run queue: one that is never empty never looks so") {
  prove(
      "run queue: empty() of one that never is",
      [] {
        const auto q = std::make_unique<run_queue>();
        const auto items = std::make_unique<item[]>(2);
        push(*q, items[0]);
        std::atomic<bool> second{false};
        std::thread thief([&] {
          if (second.load(std::memory_order_acquire)) grab(*q, 1);
        });
        std::thread looker([&] { model::require(!q->empty(), "there is always one"); });
        push(*q, items[1]);
        second.store(true, std::memory_order_release);
        thief.join();
        looker.join();
      },
      also::unbounded);
}
