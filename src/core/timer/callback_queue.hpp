// callback_queue: callbacks that are due and wait for a runner fiber.
//
// A due callback is only queued: it stays pending until its runner takes the claim, right
// before the call (P4). Queued callbacks are work, as ready fibers are:
// timer_board::callbacks_waiting says how many there are.
//
// A posted callback goes to the tail; a round ends where the queue ended when the round
// began. A deferred callback waits with its fiber until the fiber gives up its worker or
// has run the last of the user's code. It is pending meanwhile, so that the run is not
// taken for finished.
//
// While the run stops only handlers start (timer_record::is_handler). The others that are
// met in front of one are set aside; they are discarded at the end.
#pragma once

#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/worker/timer_board.hpp"
#include "core/timer/records.hpp"

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class callback_queue {
 public:
  explicit callback_queue(timer_board& board) noexcept : board_(board) {}

  // Queues callbacks that have come due by `now`. Takes over one reference to each.
  // Caller: the timer fiber.
  void push_due(timer_record** due, std::size_t n, nanos now) noexcept VIGIL_EXCLUDES(lock_);
  // The same for one that was armed when it was due already, by any thread.
  void push_soon(timer_record& t, nanos now) noexcept VIGIL_EXCLUDES(lock_);
  // Queues a callback that is due at once. Caller: t is pending and marked as queued.
  void push_posted(timer_record& t) noexcept VIGIL_EXCLUDES(lock_);
  // Queues everything that the fiber has deferred; its list has the newest first.
  void push_deferred(fiber& f) noexcept VIGIL_EXCLUDES(lock_);

  // Says which of the posted callbacks belong to the round of a runner's turn.
  using round = std::uint64_t;
  static constexpr round new_round = UINT64_MAX;

  // Which callbacks may start: all of them, or, while the run stops, handlers alone.
  enum class those : std::uint8_t { all, handlers, none };

  // Whether there is one that may start. Caller: is about to enter a runner for it; of
  // several workers that do, one runner takes it.
  bool has_one(those may) noexcept VIGIL_EXCLUDES(lock_);
  // Takes the next callback that was not posted after the round began, and begins a
  // new_round; nullptr if there is none.
  timer_record* pop(those may, nanos& due_until, round& of) noexcept VIGIL_EXCLUDES(lock_);
  // Takes any callback, to discard it; nullptr if none is left.
  timer_record* pop_to_discard() noexcept VIGIL_EXCLUDES(lock_);

  // Calls look(record) for every queued callback.
  template <class Look>
  void look_through(Look look) noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    for (const record_chain* const c : {&queue_, &aside_}) {
      for (timer_record* t = c->front(); t != nullptr; t = t->next)
        look(*t);
    }
  }

 private:
  friend struct debug_layout;

  using record_chain = chain<timer_record, &timer_record::next>;

  void add(timer_record** due, std::size_t n, nanos now) noexcept VIGIL_EXCLUDES(lock_);

  // While the run stops, some of them may be set aside before they start.
  void publish() noexcept VIGIL_REQUIRES(lock_) {
    board_.callbacks_waiting.store(queue_.size());  // seq_cst: IA1 of idle.hpp
  }

  void set_aside() noexcept VIGIL_REQUIRES(lock_);
  timer_record* pop_front(nanos& due_until) noexcept VIGIL_REQUIRES(lock_);

  timer_board& board_;
  spinlock lock_{lock_rank::callbacks};
  record_chain queue_ VIGIL_GUARDED_BY(lock_);
  record_chain aside_ VIGIL_GUARDED_BY(lock_);        // they never start: the run stops
  std::uint64_t posted_ VIGIL_GUARDED_BY(lock_) = 0;  // how many were posted so far
};

}  // namespace VIGIL_DETAIL
