// callback_queue: callbacks that are due and wait for a runner fiber.
//
// A due callback is only queued: it is still pending until its runner, right before
// the call, takes the claim (P4). A queue with something in it is work like a ready
// fiber: scheduler::callbacks_waiting says how much.
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

  // nullptr: none is there, or those left were posted after the round began.
  timer_record* pop(nanos& due_until, round& of) noexcept VIGIL_EXCLUDES(lock_);

  template <class Look>
  void look_through(Look look) noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    for (timer_record* t = queue_.front(); t != nullptr; t = t->next)
      look(*t);
  }

 private:
  using record_chain = chain<timer_record, &timer_record::next>;

  void publish() noexcept VIGIL_REQUIRES(lock_) {
    sched_.callbacks_waiting.store(queue_.size());  // seq_cst: A1 of idle.hpp
  }

  scheduler& sched_;
  spinlock lock_{lock_rank::callbacks};
  record_chain queue_ VIGIL_GUARDED_BY(lock_);
  std::uint64_t posted_ VIGIL_GUARDED_BY(lock_) = 0;  // functions so far
};

}  // namespace vigil::inline VIGIL_ABI::detail
