// selecting: one select that may have to wait: SE1, SE2 and the steps are in
// select_core.hpp. It knows the cases, and not who waits: a fiber or a thread
// (select_core.cpp), or a task (task_wait.cpp).
#pragma once

#include "sched/wait/case_table.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>

#include <boost/container/small_vector.hpp>

namespace VIGIL_DETAIL {

// The one that selects.
class select_owner {
 public:
  // Called under the locks of the cases.
  virtual bool may_not_wait() const noexcept = 0;
  virtual waiter& self() noexcept = 0;
  // Opens the wait that all places stand for.
  virtual ticket open() noexcept = 0;
  // Called without a lock, if may_not_wait(): throws.
  [[noreturn]] virtual void refuse() = 0;

 protected:
  ~select_owner() = default;
};

class selecting {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  static constexpr std::size_t again = none - 1;  // another round follows

  // Throws std::invalid_argument for a second otherwise().
  selecting(select_case* const* cases, std::size_t count, choice mode);
  ~selecting();
  selecting(const selecting&) = delete;
  selecting& operator=(const selecting&) = delete;

  // Takes the first case in the order of the draw that is ready. Each look is at an
  // instant of its own, which is enough for a case that is taken.
  std::size_t look_at_each() noexcept;

  // Whether a case can come at all, but by time.
  bool waits_for_something() const noexcept { return order_.size() != 0; }

  // The end of the wait by time, and the case that it takes; none without a timed case.
  const wait_limit& limit() const noexcept { return limit_; }

  std::size_t timed() const noexcept { return timed_; }

  std::size_t otherwise() const noexcept { return otherwise_; }

  // Whether a case has steps before its wait, as those of I/O have.
  bool has_prepared_cases() const noexcept;

  // --- a round. Caller: waits_for_something()
  // Prepares it. Throws what a case's begin() throws.
  void begin_round();

  // The limit of its wait, which a case's own deadline may end early: then another round
  // follows.
  wait_limit round_limit() const noexcept {
    return ends_early() ? limit_.until(round_ends_) : limit_;
  }

  bool ends_early() const noexcept { return !begun_.empty() && round_ends_ < limit_.nanoseconds; }

  // Looks at all cases at one instant, and returns the one that it has taken. If none is
  // ready, queues them with a wait of the owner's, and returns none; but if there is an
  // otherwise case, or the time is over, takes that. Throws as refuse() does, and
  // std::bad_alloc; nothing is queued then.
  std::size_t take_or_queue(select_owner& owner);

  // The wait that was opened.
  ticket open_ticket() const noexcept { return detail::place_of(*cases_[order_[0]]).ticket; }

  // Called when a wait that was queued is over: takes all places back, and returns the
  // case that has ended it, or none.
  std::size_t take_back() noexcept;

 private:
  // Indices of cases, with room for a few.
  using index_array = boost::container::small_vector<std::uint32_t, 16>;

  void sort_out(std::size_t count);
  void shuffle(index_array& order) noexcept;
  std::size_t look_at_all(wake_list& told) noexcept;

  case_lock lock_of(std::uint32_t i) const noexcept {
    return cases_[i]->table->lock(cases_[i]->object);
  }

  void lock_all() noexcept;
  void unlock_all() noexcept;
  std::size_t enqueue_all(select_owner& owner, wake_list& told);
  bool is_taken(std::size_t i) noexcept;
  void keep_objects() noexcept;
  void let_objects_go() noexcept;

  select_case* const* const cases_;
  index_array near_;                                        // the cases that may be ready
  index_array order_;                                       // those that can come at all
  index_array locks_;                                       // the same by their locks
  boost::container::small_vector<std::uint32_t, 4> begun_;  // those to be left (CT4)
  nanos round_ends_ = never;                                // as the cases have asked
  bool is_over_ = false;                                    // the round does not wait
  std::size_t otherwise_ = none;
  std::size_t timed_ = none;  // the timed case whose time comes first
  wait_limit limit_;
  const choice mode_;
  bool keeps_objects_ = false;  // those that are waited for (CH5)
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
  struct kept_object {
    const case_table* table;
    void* object;
  };

  struct kept_time {
    select_case* of;
    wait_limit given;
  };

  boost::container::small_vector<kept_object, 8> objects_;
  boost::container::small_vector<kept_time, 2> times_;
};

// Whether a look at the case may find something.
bool is_near(const select_case& c) noexcept;

}  // namespace VIGIL_DETAIL
