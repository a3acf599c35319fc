// The note: a wake is never lost, and everything written before it is seen.
#include "core/sched/wait/note.hpp"

#include "prove.hpp"

#include <memory>
#include <thread>

#include <doctest/doctest.h>

using vigil::detail::never;
using vigil::detail::note;

namespace {

struct noted {
  note n;
  int written = 0;
  std::atomic<bool> asked{false};
};

}  // namespace

TEST_CASE("note: a wake ends the sleep, whenever it comes, and publishes") {
  prove(
      "note: one waker",
      [] {
        auto s = std::make_unique<noted>();
        std::thread waker([&] {
          s->written = 7;
          s->n.wake();
        });
        model::require(s->n.sleep_until(never), "woken");
        model::require(s->written == 7, "what was written before the wake is seen");
        waker.join();
      },
      also::unbounded);
}

TEST_CASE("note: two wakers, and the note ends as soon as its owner goes on") {
  prove(
      "note: two wakers, short life",
      [] {
        auto gate = std::make_unique<std::atomic<int>>(0);
        auto* const n = new note;
        std::thread first([n, &gate] {
          n->wake();
          gate->fetch_add(1);
        });
        std::thread second([n, &gate] {
          n->wake();
          gate->fetch_add(1);
        });
        n->sleep_until(never);
        // The exchange in wake() is a waker's last touch.
        if (gate->load() == 2) delete n;
        first.join();
        second.join();
      },
      also::unbounded);
}

TEST_CASE("note: a deadline that crosses a wake loses neither") {
  prove(
      "note: deadline against wake",
      [] {
        auto s = std::make_unique<noted>();
        std::thread waker([&] {
          s->written = 7;
          s->n.wake();
        });
        const bool woken = s->n.sleep_until(model::now() + 1000);
        if (woken) {
          model::require(s->written == 7, "a wake publishes");
        } else {
          model::require(model::now() >= 1'000'001'000, "no timeout is early");
        }
        waker.join();
      },
      also::unbounded);
}

TEST_CASE("note: clear, publish, look: a thread that adds work sees the sleeper or is seen") {
  prove(
      "note: publish, look, sleep",
      [] {
        struct place {
          note n;
          std::atomic<bool> asleep{false};
          std::atomic<bool> work{false};
        };
        auto p = std::make_unique<place>();
        std::thread adder([&] {
          p->work.store(true);
          if (p->asleep.load()) p->n.wake();
        });
        p->n.clear();
        p->asleep.store(true);
        if (!p->work.load()) p->n.sleep_until(never);
        adder.join();
      },
      also::unbounded);
}
