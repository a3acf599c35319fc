// callback_queue: callbacks that are due and wait for a runner fiber.
//
// A due callback is only queued: it is still pending until its runner, right before
// the call, takes the claim (P4). A queue with something in it is work like a ready
// fiber: scheduler::callbacks_waiting says how much.
//
// A worker that goes to enter a runner has reserved one of the callbacks for it, which
// is no work for others any more: a second worker that saw it in between would enter a
// second runner, which might pop it first, and compute on the very worker that leaves
// such work to others (docs/decisions/0014).
//
// A posted one goes to the tail, and a round of them ends where the queue did as it
// began. A deferred one waits at its fiber until that gives its worker away or has run
// the last of the user's code; it is pending meanwhile, so that nobody takes the run for
// done.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/spinlock.hpp"
#include "sched/scheduler.hpp"
#include "timer/records.hpp"

#include <cstddef>
#include <cstdint>

namespace vigil::inline VIGIL_ABI::detail {

class callback_queue {
 public:
  explicit callback_queue(scheduler& sched) noexcept : sched_(sched) {}

  // Those that have come due by `now`. Takes over a reference of each.
  void push_due(timer_record** due, std::size_t n, nanos now) noexcept VIGIL_EXCLUDES(lock_);
  // Those that are due at once. Caller: each is pending and queued.
  void push_posted(timer_record& t) noexcept VIGIL_EXCLUDES(lock_);
  // All that the fiber has deferred; its list has the newest first.
  void push_deferred(fiber& f) noexcept VIGIL_EXCLUDES(lock_);

  // For a turn of a runner: which of the posted ones belong to its round.
  using round = std::uint64_t;
  static constexpr round new_round = UINT64_MAX;

  // One of the callbacks is for a runner that is about to be entered. False: none is
  // left that is not.
  bool reserve() noexcept VIGIL_EXCLUDES(lock_);
  // That runner cannot be had.
  void unreserve() noexcept VIGIL_EXCLUDES(lock_);
  // No runner that was entered will come for its callback any more.
  void unreserve_all() noexcept VIGIL_EXCLUDES(lock_);

  // By the runner that one was reserved for, once. Its round begins. nullptr: all that
  // waited were discarded meanwhile.
  timer_record* pop_reserved(nanos& due_until, round& of) noexcept VIGIL_EXCLUDES(lock_);
  // nullptr: none is left that is not reserved, or was not posted after the round began.
  timer_record* pop(nanos& due_until, round& of) noexcept VIGIL_EXCLUDES(lock_);

  template <class Look>
  void look_through(Look look) noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    for (timer_record* t = queue_.front(); t != nullptr; t = t->next)
      look(*t);
  }

 private:
  using record_chain = chain<timer_record, &timer_record::next>;

  std::size_t waiting() const noexcept VIGIL_REQUIRES(lock_) { return queue_.size() - reserved_; }

  void publish() noexcept VIGIL_REQUIRES(lock_) {
    sched_.callbacks_waiting.store(waiting());  // seq_cst: A1 of idle.hpp
  }

  timer_record* pop_front(nanos& due_until) noexcept VIGIL_REQUIRES(lock_);

  scheduler& sched_;
  spinlock lock_{lock_rank::callbacks};
  record_chain queue_ VIGIL_GUARDED_BY(lock_);
  std::size_t reserved_ VIGIL_GUARDED_BY(lock_) = 0;  // at most as many as are queued
  std::uint64_t posted_ VIGIL_GUARDED_BY(lock_) = 0;  // functions so far
};

}  // namespace vigil::inline VIGIL_ABI::detail
