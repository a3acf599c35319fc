// waiter: the record that stands for a fiber, a plain thread or a coroutine while
// it waits, and its ticket, which decides how the wait ends.
//
// The danger. A wait can be ended by a value, a close, a timeout, a cancel and
// a stop at the same moment, from different threads, and some of them come
// late: a timer that fires after the wait is over must not end the next one.
//
// The rule. Each wait has a ticket, a number that is never used again. A thread
// that wants to end the wait claims the ticket: one compare-exchange of one word
// from {ticket, open} to {ticket, outcome}. It succeeds for exactly one thread, and
// only while that very wait is open. The winner finishes what it has to hand
// over and then calls deliver(), once; all others give up.
//
//   owner      open() ─ enqueue, arm the deadline ─ park ─ outcome() ─ unlink
//   any thread                    claim(ticket, result) ─ hand over ─ deliver()
//
// WT1 The word changes from open exactly once per ticket.
// WT2 deliver() is called exactly once per ticket, by the winner, and is its
//     last touch of the waiter: the owner may be gone afterwards.
// WT3 A stop may claim only a wait that was opened as stoppable, the end of a
//     deadlocked run only one that was opened as for a lock.
#pragma once

#include "core/base/assert.hpp"
#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/fiber_core.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

using fiber = fiber_core;
class note;
class runtime_timer;

// How a wait ended.
enum class outcome : std::uint8_t {
  open = 0,
  value,
  closed,
  timeout,
  cancelled,
  stopped,
  deadlock
};

using ticket = std::uint64_t;

// When a fiber that was made runnable runs: before the fibers in its worker's queue,
// within the bound of hand-offs, or behind them.
enum class run_order : std::uint8_t { next, in_order };

class waiter {
 public:
  enum class kind : std::uint8_t { of_fiber, of_thread, of_coroutine };

  // The function that a coroutine's waiter calls when it is delivered.
  using resume_function = void (*)(void* frame) noexcept;

  explicit waiter(fiber& owner) noexcept : kind_(kind::of_fiber), owner_(&owner) {}

  explicit waiter(note& owner) noexcept : kind_(kind::of_thread), owner_(&owner) {}

  waiter(resume_function resume, void* frame) noexcept
      : kind_(kind::of_coroutine), owner_(frame), resume_(resume) {}

  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

  // Caller: the owner, when none of its waits is open. seq_cst: the owner then looks
  // whether a stop has been asked for, while request_stop sets that flag and then looks
  // at this word; one of them sees the other.
  ticket open(bool stoppable, bool for_lock = false) noexcept {
    // ordering: only the owner changes a word that is not open.
    const ticket next = (word_.load(order::relaxed) >> shift) + 1;
    VIGIL_ASSERT(outcome() != detail::outcome::open, "waiter: a wait is open already");
    word_.store((next << shift) | (stoppable ? stoppable_bit : 0) | (for_lock ? lock_bit : 0));
    return next;
  }

  // Called by any thread; true for exactly one caller per ticket.
  bool claim(ticket t, detail::outcome result) noexcept {
    // Pairs with the release of the earlier claim or the store in open();
    // ordering: the compare-exchange decides, the load only proposes.
    std::uint64_t seen = word_.load(order::relaxed);
    while (seen >> shift == t && (seen & outcome_mask) == 0) {
      if (word_.compare_exchange_weak(seen, (t << shift) | static_cast<std::uint64_t>(result))) {
        return true;
      }
    }
    return false;
  }

  // Claims the open wait, whatever its ticket, if it is stoppable (WT3). Caller: any
  // thread that keeps the waiter alive.
  bool claim_stop() noexcept { return claim_if(stoppable_bit, detail::outcome::stopped); }

  // The same for a wait for a lock.
  bool claim_deadlock() noexcept { return claim_if(lock_bit, detail::outcome::deadlock); }

  // Makes the owner go on. Caller: the thread that claimed; this is its last touch (WT2).
  VIGIL_FOR_IO void deliver(run_order when = run_order::next) noexcept;

  // Caller: the owner, after it was delivered.
  detail::outcome outcome() const noexcept {
    // Pairs with claim(): ordered by park and deliver as well.
    return static_cast<detail::outcome>(word_.load(order::acquire) & outcome_mask);
  }

  // The ticket of the last wait, open or not. ordering: for those who look inside.
  ticket last() const noexcept { return word_.load(order::relaxed) >> shift; }

  kind type() const noexcept { return kind_; }

  fiber& as_fiber() const noexcept { return *static_cast<fiber*>(owner_); }

  // The owner's timer for deadlines; belongs to the timer service.
  runtime_timer* timer = nullptr;
  waiter* next_woken = nullptr;  // in a wake_list, from the claim to the delivery

 private:
  friend struct debug_layout;

  static constexpr int shift = 5;
  static constexpr std::uint64_t outcome_mask = 7;
  static constexpr std::uint64_t stoppable_bit = 8;
  static constexpr std::uint64_t lock_bit = 16;

  bool claim_if(std::uint64_t bit, detail::outcome result) noexcept {
    std::uint64_t seen = word_.load();
    while ((seen & (outcome_mask | bit)) == bit) {
      const std::uint64_t to = (seen >> shift << shift) | static_cast<std::uint64_t>(result);
      if (word_.compare_exchange_weak(seen, to)) return true;
    }
    return false;
  }

  // {ticket, for a lock, stoppable, outcome}; starts as a wait that has ended.
  atomic<std::uint64_t> word_{static_cast<std::uint64_t>(detail::outcome::value)};
  const kind kind_;
  void* const owner_;
  const resume_function resume_ = nullptr;
};

// One wait of a waiter, left where the thread that ends it can find it.
struct open_wait {
  waiter* whose = nullptr;
  ticket opened = 0;
  // Whether the wait was ended from here, for an owner that left it in several places.
  // Written between claim and deliver().
  bool has_won = false;

  // True if this ended the wait; the caller then delivers the waiter.
  bool claim(outcome result) noexcept {
    if (!whose->claim(opened, result)) return false;
    has_won = true;
    return true;
  }
};

// The same in a queue, linked and unlinked under the queue's lock. It lies on the stack
// of the fiber or thread that waits, which takes it out if no other thread has.
struct queued_waiter : open_wait {
  queued_waiter() = default;

  explicit queued_waiter(const open_wait& w) noexcept : open_wait(w) {}

  list_hook<queued_waiter> hook;
  const void* ahead = nullptr;  // for far_list
};

}  // namespace VIGIL_DETAIL
