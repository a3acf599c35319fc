// Waits built on park and ready, for their proofs.
#pragma once

#include "core/base/spinlock.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/wait/note.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/sched/worker/worker.hpp"
#include "explorer/engine.hpp"
#include "programs.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <utility>

#include <doctest/doctest.h>

namespace programs::mailboxes {

using programs::gate;
using vigil::detail::caller;
using vigil::detail::current_fiber;
using vigil::detail::fiber;
using vigil::detail::lock_guard;
using vigil::detail::lock_rank;
using vigil::detail::outcome;
using vigil::detail::spinlock;
using vigil::detail::ticket;
using vigil::detail::wait_reason;
using vigil::detail::waiter;

// One value for one fiber, built on park and ready as the library's own waits are: it
// unlocks, and then parks.
class mailbox {
 public:
  int take() {
    caller self;
    if (self.may_not_wait()) self.refuse("take");
    lock_.lock();
    if (!filled_) {
      const ticket t = self.open();
      taker_ = &self.own_waiter();
      its_ticket_ = t;
      lock_.unlock();
      const outcome how = self.wait(t, wait_reason::join);
      if (how == outcome::stopped) {
        take_out(self.own_waiter());
        self.throw_if_ended(how);
      }
      model::require(how == outcome::value, "a fiber goes on only when its wait is over");
      lock_.lock();
    }
    model::require(filled_, "the value is there");
    filled_ = false;
    const int v = value_;
    lock_.unlock();
    return v;
  }

  bool has_taker() {
    const lock_guard guard(lock_);
    return taker_ != nullptr;
  }

  void put(int v) {
    waiter* ended = nullptr;
    {
      const lock_guard guard(lock_);
      value_ = v;
      filled_ = true;
      waiter* const w = std::exchange(taker_, nullptr);
      if (w != nullptr && w->claim(its_ticket_, outcome::value)) ended = w;
    }
    if (ended != nullptr) ended->deliver();
  }

 private:
  void take_out(const waiter& w) {
    const lock_guard guard(lock_);
    if (taker_ == &w) taker_ = nullptr;
  }

  spinlock lock_{lock_rank::fiber_join};
  waiter* taker_ = nullptr;
  ticket its_ticket_ = 0;
  bool filled_ = false;
  int value_ = 0;
};

// A wait that is found without a lock, by its ticket alone, like a timer's.
class alarm_clock {
 public:
  void sleep() {
    fiber& self = *current_fiber();
    who_ = &self.own_waiter;
    brought_ = 0;
    const ticket t = self.own_waiter.open(false);
    set_.store(t, std::memory_order_release);
    const outcome how =
        vigil::detail::wait(self, t, wait_reason::sleep, vigil::detail::no_limit, false);
    model::require(how == outcome::timeout, "a fiber goes on only when its wait is over");
    model::require(brought_ == 7, "what was written before ready() is seen after park()");
  }

  void ring() {
    model::wait_until([this] { return set_.load(std::memory_order_relaxed) != 0; });
    const ticket t = set_.fetch_add(0, std::memory_order_acquire);  // the newest
    model::require(who_->claim(t, outcome::timeout), "nobody else claims it");
    brought_ = 7;
    who_->deliver();
  }

 private:
  std::atomic<ticket> set_{0};
  waiter* who_ = nullptr;
  int brought_ = 0;
};

// Returns whether the fiber's stack, with its control block, has been given back.
inline bool is_gone(const fiber* f) {
  return f != nullptr && model::freed_memory(f);
}

// A result that counts its instances.
class counted_result {
 public:
  explicit counted_result(std::atomic<int>& n) : n_(&n) { n_->fetch_add(1); }

  counted_result(const counted_result& other) : n_(other.n_) { n_->fetch_add(1); }

  counted_result& operator=(const counted_result&) = delete;

  ~counted_result() { n_->fetch_sub(1); }

 private:
  std::atomic<int>* n_;
};

// A fiber on its last lines on the other worker: it ends once the gate is open.
template <class F>
auto about_to_end(gate& g, F&& f) {
  auto handle = vigil::spawn([&g, f = std::forward<F>(f)] {
    g.enter();
    return f();
  });
  g.await();
  return handle;
}

}  // namespace programs::mailboxes
