// case_table: what a select does with one kind of case. Each layer has the tables of what
// it can wait for; select itself (chan/selecting.hpp) knows none of them.
//
//   look              without the lock
//   begin             without the lock, before each round
//   lock ─ poll ─ enqueue ─ unlock ─ the wait ─ retract, under the lock again
//            │                          └ end, for the case that ended it
//            └ take   without the lock, for the case that was ready or has ended the wait;
//                     if that was a false alarm, the next round begins
//   leave             without the lock, when all is over
//
// CT1 A case keeps its place (select_case::place) from enqueue() on until it is retracted
//     or has won. The place begins with an open_wait.
// CT2 Who ends the wait does so by open_wait::claim(), between locking the queue and
//     deliver(); so exactly one place of a select has won, or none.
// CT3 A case that has not won is retracted, whatever has ended the wait. One that has won
//     is not: its queue may be gone.
// CT4 leave() is called once for each case whose begin() has returned, before select
//     returns or throws.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/lock_rank.hpp"
#include "core/base/nanos.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/wait/wait_reason.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/sched/wait/wake_list.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace VIGIL_DETAIL {

// The lock of the queue in which a case waits: a spinlock, or the word of a wait_queue.
// Several are taken in the order of their ranks, and of their addresses within a rank.
class case_lock {
 public:
  explicit case_lock(spinlock& s) noexcept : word_(&s.word()), rank_(s.rank()) {}

  case_lock(atomic<bool>& word, lock_rank rank) noexcept : word_(&word), rank_(rank) {}

  void lock() const noexcept {
    spinlock::take(*word_);
    lock_taken(rank_);
  }

  // Takes it while `last`, which comes before it, is the last that was taken.
  void lock_after(const case_lock& last) const noexcept {
    spinlock::take(*word_);
    last.rank_ == rank_ ? lock_taken_beside(rank_) : lock_taken(rank_);
  }

  void unlock() const noexcept {
    lock_released(rank_);
    spinlock::give(*word_);
  }

  friend bool operator==(const case_lock& a, const case_lock& b) noexcept {
    return a.word_ == b.word_;
  }

  friend bool operator<(const case_lock& a, const case_lock& b) noexcept {
    return a.rank_ != b.rank_ ? a.rank_ < b.rank_ : std::less<>()(a.word_, b.word_);
  }

 private:
  atomic<bool>* word_;
  lock_rank rank_;
};

// For a case that the thread which ended the wait has left nothing to do.
inline void end_nothing(select_case&) noexcept {}

struct case_table {
  // For those who look inside: the wait as if it were for this case alone, whose
  // awaited::object lies this far behind the case's.
  wait_reason reason;
  std::ptrdiff_t shown_at;

  // Without the lock: takes the case and returns true, if it is ready.
  bool (*look)(select_case& c) noexcept;
  // The lock of the queue that the case would be in; the same for equal objects.
  case_lock (*lock)(void* object) noexcept;
  // Under the lock: as look(). The waiters whose waits it has ended go to `claimed`.
  bool (*poll)(select_case& c, wake_list& claimed) noexcept;
  // Under the lock, after poll(): queues the case; the ticket follows before the lock is
  // released. Returns false if it has taken the case instead. Throws std::bad_alloc, with
  // nothing queued, and wrong_place for a case that may not wait.
  bool (*enqueue)(select_case& c);
  // Under the lock: takes the case out if it is still queued.
  void (*retract)(select_case& c, wake_list& claimed) noexcept;
  // Without the lock. After the wait, for the case that has won.
  void (*end)(select_case& c) noexcept = end_nothing;
  // --- Without locks; nullptr where there is nothing to do.
  // Before each round. `waits`: the select waits if nothing is ready. Returns the time at
  // which the next round begins at the latest. Throws what the case throws.
  nanos (*begin)(select_case& c, bool waits) = nullptr;
  // Takes the case, or returns false after a false alarm.
  bool (*take)(select_case& c) noexcept = nullptr;
  // Undoes begin().
  void (*leave)(select_case& c) noexcept = nullptr;
};

// The one that waits for cases, and how it opens the wait.
struct case_owner {
  waiter& own_waiter;
  bool may_not_wait;
  bool stoppable;
  bool for_lock = false;
};

// The place of a case, which enqueue() makes.
template <class Place>
Place& make_place(select_case& c) noexcept {
  static_assert(sizeof(Place) <= sizeof c.place && std::is_base_of_v<open_wait, Place>);
  return *::new (static_cast<void*>(c.place)) Place;
}

template <class Place = open_wait>
Place& place_of(select_case& c) noexcept {
  return *std::launder(reinterpret_cast<Place*>(c.place));
}

// Takes the place of a case back after the wait. True if it has ended the wait (CT3).
inline bool take_back(select_case& c) noexcept {
  if (place_of(c).has_won) {
    c.table->end(c);
    return true;
  }
  wake_list claimed;
  const case_lock lock = c.table->lock(c.object);
  lock.lock();
  c.table->retract(c, claimed);
  lock.unlock();
  claimed.deliver();
  return false;
}

// The object that those who look inside are shown.
inline const void* shown_of(const select_case& c) noexcept {
  return static_cast<const std::byte*>(c.object) + c.table->shown_at;
}

}  // namespace VIGIL_DETAIL
