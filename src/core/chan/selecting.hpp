// selecting: a select, which waits for several things at once, takes one, and leaves no
// trace of the others. It knows the cases, and not who waits: a fiber or a thread
// (select_core.cpp), or a task (task_wait.cpp).
//
//   look    the cases in the order of a draw, each under its own lock; the
//           first that is ready is taken. Timers that are far from due are left
//           out, so that one beside a ready channel costs no clock read
//   queue   none was: all locks, in their order (case_lock); look again, at
//           all of them at one instant; then a place in each queue, all with
//           one ticket
//   wait    unlock, park; the place that has won says which case it was
//   undo    the other places are taken back
//
// A case for which "ready" may be a false alarm is taken without the locks; if it was
// one, all but the first step is done again.
//
// Each kind of case has a case_table (sched/wait/case_table.hpp).
//
// SE1 A select that says "nothing is ready" (otherwise, a timeout of zero) has
//     looked at all cases while it held all their locks.
// SE2 No lock is held while it parks: a claim before it has parked leaves
//     word in park_state (park.hpp).
#pragma once

#include "core/sched/wait/case_table.hpp"

#include <vigil/detail/channel_parts.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>

#include <boost/container/small_vector.hpp>

namespace VIGIL_DETAIL {

// The cases of a select that waits. It lies on the waiter's stack, or beside the wait of
// a task (awaited::object).
struct shown_select {
  select_case* const* cases;
  std::size_t count;
};

class selecting {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  static constexpr std::size_t again = none - 1;     // another round follows
  static constexpr std::size_t refused = again - 1;  // the owner may not wait

  // Throws std::invalid_argument for a second otherwise().
  selecting(select_case* const* cases, std::size_t count, choice mode);
  ~selecting();
  selecting(const selecting&) = delete;
  selecting& operator=(const selecting&) = delete;

  // Takes the first case in the order of the draw that is ready. Each look is at an
  // instant of its own, which is enough for a case that is taken.
  std::size_t look_at_each() noexcept;

  // The end of the wait by time, and the case that it takes; none without a timed case.
  const wait_limit& limit() const noexcept { return limit_; }

  std::size_t timed() const noexcept { return timed_; }

  // Whether a case has steps before its wait, as those of I/O have.
  bool has_prepared_cases() const noexcept;

  // --- a round
  // Prepares it. Throws what a case's begin() throws, and std::bad_alloc.
  void begin_round();

  // The limit of its wait, which a case's own deadline may end early: then another round
  // follows.
  wait_limit round_limit() const noexcept {
    return ends_early() ? limit_.until(round_ends_) : limit_;
  }

  bool ends_early() const noexcept { return !begun_.empty() && round_ends_ < limit_.nanoseconds; }

  // Looks at all cases at one instant, and returns the one that it has taken. If none is
  // ready, queues them with a wait of the owner's, and returns none; but if there is an
  // otherwise case, or the time is over, takes that. Returns `refused` if the owner may
  // not wait. Throws what the cases throw, and std::bad_alloc. Nothing is queued then.
  std::size_t take_or_queue(const case_owner& owner);

  // The wait that was opened.
  ticket open_ticket() const noexcept { return ticket_; }

  awaited awaits(const shown_select& all) const noexcept {
    if (order_.empty() && timed_ == none) return wait_reason::select_none;
    return {wait_reason::select, &all};
  }

  // Called when a wait that was queued is over: takes all places back, and returns the
  // case that has ended it, or none.
  std::size_t take_back() noexcept;

 private:
  // Indices of cases, with room for a few.
  using index_array = boost::container::small_vector<std::uint32_t, 16>;

  void sort_out(std::size_t count);
  void shuffle() noexcept;
  std::size_t look_at_all(wake_list& claimed) noexcept;

  case_lock lock_of(std::uint32_t i) const noexcept {
    return cases_[i]->table->lock(cases_[i]->object);
  }

  void lock_all() noexcept;
  void unlock_all() noexcept;
  std::size_t enqueue_all(const case_owner& owner, wake_list& claimed);
  bool is_taken(std::size_t i) noexcept;

  select_case* const* const cases_;
  index_array order_;                                       // those that can come at all
  index_array locks_;                                       // the same by their locks
  boost::container::small_vector<std::uint32_t, 4> begun_;  // those to be left (CT4)
  nanos round_ends_ = never;                                // as the cases have asked
  bool is_over_ = false;                                    // the round does not wait
  std::size_t otherwise_ = none;
  std::size_t timed_ = none;  // the timed case whose time comes first
  wait_limit limit_;
  const choice mode_;
  ticket ticket_ = 0;
  boost::container::small_vector<channel_handle, 8> kept_;  // once it is to wait (CH5)
};

// Keeps what a select was given while it gives way: the objects, the contexts of its
// limits, and the deadlines that its timeouts mean now. Afterwards each case has its own
// timeout again.
class kept_cases {
 public:
  // Throws std::bad_alloc.
  kept_cases(select_case* const* cases, std::size_t count);
  ~kept_cases();
  kept_cases(const kept_cases&) = delete;
  kept_cases& operator=(const kept_cases&) = delete;

 private:
  struct kept_time {
    select_case* of;
    wait_limit given;
  };

  boost::container::small_vector<channel_handle, 8> channels_;
  boost::container::small_vector<kept_time, 2> times_;
};

// Whether a look at the case may find something.
bool is_near(const select_case& c) noexcept;

}  // namespace VIGIL_DETAIL
