// The ticket: of all that would end a wait exactly one does, and no claim ends another
// wait than the one it knows of (WT1-WT3 of waiter.hpp).
#include "core/sched/wait/waiter.hpp"

#include "core/base/spinlock.hpp"
#include "core/sched/wait/note.hpp"
#include "prove.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using vigil::detail::lock_guard;
using vigil::detail::lock_rank;
using vigil::detail::never;
using vigil::detail::note;
using vigil::detail::outcome;
using vigil::detail::spinlock;
using vigil::detail::ticket;
using vigil::detail::waiter;

namespace {

constexpr std::array<outcome, 5> ends{
    outcome::value, outcome::closed, outcome::timeout, outcome::cancelled, outcome::stopped};

const char* name_of(outcome how) {
  constexpr const char* names[] = {"open", "value", "closed", "timeout", "cancelled", "stopped"};
  return names[static_cast<int>(how)];
}

// A thread's wait, and the result that the thread which ends it leaves for the owner.
struct wait {
  note n;
  waiter w{n};
  outcome left = outcome::open;
};

bool claim(waiter& w, ticket t, outcome how) {
  return how == outcome::stopped ? w.claim_stop() : w.claim(t, how);
}

// Each claimant would end one and the same wait, and so would the owner if it has a
// deadline.
void race(const std::vector<outcome>& claimants, bool deadline = false) {
  const auto it = std::make_unique<wait>();
  std::atomic<int> winners{0};
  it->n.clear();
  const ticket t = it->w.open(true);
  std::vector<std::thread> threads;
  for (const outcome how : claimants) {
    threads.emplace_back([&it, &winners, t, how] {
      if (!claim(it->w, t, how)) return;
      winners.fetch_add(1);
      it->left = how;
      it->w.deliver();
    });
  }
  if (deadline && it->w.claim(t, outcome::timeout)) {
    winners.fetch_add(1);
    it->left = outcome::timeout;
  } else {
    it->n.sleep_until(never);
  }
  model::require(it->w.outcome() == it->left, "the one who claimed has left what he brought");
  for (std::thread& thread : threads)
    thread.join();
  model::require(winners.load() == 1, "exactly one ends the wait");
}

// A place at which a wait can be found: visitors must not touch one that is over.
struct place {
  spinlock lock{lock_rank::fiber_join};
  waiter* found VIGIL_GUARDED_BY(lock) = nullptr;
  ticket t VIGIL_GUARDED_BY(lock) = 0;

  // Claims under the lock, while the owner is sure to be alive.
  void end(outcome how) {
    waiter* mine = nullptr;
    {
      const lock_guard guard(lock);
      if (found != nullptr && claim(*found, t, how)) mine = std::exchange(found, nullptr);
    }
    if (mine != nullptr) mine->deliver();
  }

  void publish(waiter& w, ticket its) {
    const lock_guard guard(lock);
    found = &w;
    t = its;
  }

  void take_out(const waiter& w) {
    const lock_guard guard(lock);
    if (found == &w) found = nullptr;
  }
};

}  // namespace

TEST_CASE("waiter: exactly one of two claims ends a wait") {
  for (std::size_t i = 0; i < ends.size(); ++i) {
    for (std::size_t k = i + 1; k < ends.size(); ++k) {
      const std::string name =
          std::string("waiter: ") + name_of(ends[i]) + " against " + name_of(ends[k]);
      prove(
          name.c_str(),
          [=] {
            race({ends[i], ends[k]});
          },
          also::unbounded);
    }
  }
}

TEST_CASE("waiter: exactly one of three claims ends a wait") {
  prove(
      "waiter: value, timeout, stopped",
      [] {
        race({outcome::value, outcome::timeout, outcome::stopped});
      },
      also::unbounded);
  prove(
      "waiter: closed, cancelled, stopped",
      [] {
        race({outcome::closed, outcome::cancelled, outcome::stopped});
      },
      also::unbounded);
}

TEST_CASE("waiter: all five ends meet") {
  prove("waiter: all five", [] {
    race({outcome::value, outcome::closed, outcome::cancelled, outcome::stopped}, true);
  });
}

TEST_CASE("waiter: a late claim does not end the next wait") {
  prove(
      "waiter: late claims, two waits in a row",
      [] {
        const auto it = std::make_unique<wait>();
        std::atomic<ticket> second{0};
        it->n.clear();
        const ticket first = it->w.open(false);
        std::thread late([&] {
          if (it->w.claim(first, outcome::timeout)) it->w.deliver();
        });
        std::thread other([&] {
          if (it->w.claim(first, outcome::value)) it->w.deliver();
          // Before the owner opens the second wait its number is of no use.
          if (it->w.claim(first + 1, outcome::closed)) {
            it->left = outcome::closed;
            it->w.deliver();
            return;
          }
          model::wait_until([&] { return second.load(std::memory_order_relaxed) != 0; });
          if (it->w.claim(second.load(), outcome::closed)) {
            it->left = outcome::closed;
            it->w.deliver();
          }
        });
        it->n.sleep_until(never);
        const outcome how = it->w.outcome();
        model::require(how == outcome::value || how == outcome::timeout, "the first ends as asked");
        it->n.clear();
        second.store(it->w.open(false));
        it->n.sleep_until(never);
        model::require(it->w.outcome() == outcome::closed, "the second ends as asked");
        model::require(it->left == outcome::closed, "and hands over what was brought");
        late.join();
        other.join();
      },
      also::unbounded);
}

TEST_CASE("waiter: a late stop ends the next wait only if that may be stopped") {
  prove(
      "waiter: claim_stop, two waits in a row",
      [] {
        const auto it = std::make_unique<wait>();
        it->n.clear();
        const ticket first = it->w.open(true);
        std::thread stopper([&] {
          if (it->w.claim_stop()) it->w.deliver();
        });
        std::thread other([&] {
          if (it->w.claim(first, outcome::value)) it->w.deliver();
        });
        it->n.sleep_until(never);
        it->n.clear();
        const ticket second = it->w.open(false);
        std::thread closer([&] {
          if (it->w.claim(second, outcome::closed)) it->w.deliver();
        });
        it->n.sleep_until(never);
        model::require(it->w.outcome() == outcome::closed, "no stop ends a wait that shields");
        stopper.join();
        other.join();
        closer.join();
        model::require(!it->w.claim_stop(), "a wait that is over cannot be stopped");
      },
      also::unbounded);
}

TEST_CASE("waiter: a stop and the opening of a wait see one another") {
  // As wait() of park.cpp, and request_stop() of fiber_api.cpp.
  const auto waits = [](wait& it, const std::atomic<bool>& flag, std::atomic<ticket>& opened) {
    it.n.clear();
    const ticket t = it.w.open(true);
    opened.store(t, std::memory_order_release);
    if (!flag.load() || !it.w.claim(t, outcome::stopped)) it.n.sleep_until(never);
    return it.w.outcome();
  };
  prove(
      "waiter: stop flag against open, twice",
      [=] {
        const auto it = std::make_unique<wait>();
        std::atomic<bool> flag{false};
        std::atomic<ticket> opened{0};
        std::thread stopper([&] {
          flag.store(true);
          if (it->w.claim_stop()) it->w.deliver();
        });
        model::require(waits(*it, flag, opened) == outcome::stopped, "the first is stopped");
        model::require(waits(*it, flag, opened) == outcome::stopped, "the second as well");
        stopper.join();
      },
      also::unbounded);
  prove(
      "waiter: stop flag against open, and a value",
      [=] {
        const auto it = std::make_unique<wait>();
        std::atomic<bool> flag{false};
        std::atomic<ticket> opened{0};
        std::thread stopper([&] {
          flag.store(true);
          if (it->w.claim_stop()) it->w.deliver();
        });
        std::thread giver([&] {
          const ticket t = opened.load(std::memory_order_acquire);
          if (t == 0 || !it->w.claim(t, outcome::value)) return;
          it->left = outcome::value;
          it->w.deliver();
        });
        const outcome how = waits(*it, flag, opened);
        if (how == outcome::value) {
          model::require(it->left == outcome::value, "what came with the value is there");
        } else {
          model::require(how == outcome::stopped, "stopped if no value came first");
        }
        stopper.join();
        giver.join();
      },
      also::unbounded);
}

TEST_CASE("waiter: deliver() is the last touch: the wait may end its life there") {
  prove(
      "waiter: short life, one claimant",
      [] {
        auto* const it = new wait;
        it->n.clear();
        const ticket t = it->w.open(false);
        std::thread giver([it, t] {
          if (it->w.claim(t, outcome::value)) it->w.deliver();
        });
        it->n.sleep_until(never);
        delete it;
        giver.join();
      },
      also::unbounded);
  // As join() from a plain thread: the owner's own deadline is one of three.
  prove(
      "waiter: short life, two and a deadline",
      [] {
        const auto where = std::make_unique<place>();
        auto* const it = new wait;
        it->n.clear();
        const ticket t = it->w.open(true);
        where->publish(it->w, t);
        std::thread giver([&] { where->end(outcome::value); });
        std::thread stopper([&] { where->end(outcome::stopped); });
        if (!it->n.sleep_until(model::now() + 1000)) {
          if (it->w.claim(t, outcome::timeout)) {
            where->take_out(it->w);
          } else {
            it->n.sleep_until(never);
          }
        }
        model::require(it->w.outcome() != outcome::open, "the wait is over");
        delete it;
        giver.join();
        stopper.join();
      },
      also::unbounded);
}

TEST_CASE("waiter: a coroutine is resumed once, and may be gone before deliver() returns") {
  prove(
      "waiter: a coroutine's",
      [] {
        struct frame {
          waiter w{[](void* self) noexcept {
                     auto* const me = static_cast<frame*>(self);
                     me->resumed->fetch_add(1);
                     delete me;
                   },
                   this};
          std::atomic<int>* resumed = nullptr;
        };
        const auto where = std::make_unique<place>();
        std::atomic<int> resumed{0};
        auto* const it = new frame;
        it->resumed = &resumed;
        where->publish(it->w, it->w.open(true));
        std::thread giver([&] { where->end(outcome::value); });
        std::thread closer([&] { where->end(outcome::closed); });
        where->end(outcome::stopped);
        giver.join();
        closer.join();
        model::require(resumed.load() == 1, "resumed once");
      },
      also::unbounded);
}
