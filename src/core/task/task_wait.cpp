// How a task waits: as caller.hpp and select_core.cpp do for fibers, in two halves with
// the coroutine's suspension in between.
//
// TW1 The task says that it is about to wait (next, wanted) before anyone can find the
//     wait: it may be resumed as soon as begin() has returned true, on another thread.
// TW2 begin() returns false only if no deliver() will come: nothing was queued, or it has
//     claimed the wait itself.
#include "core/task/task_wait.hpp"

#include "core/sched/wait/case_table.hpp"
#include "core/sched/worker/turn_budget.hpp"
#include "core/sync/take_or_wait.hpp"

#include <vigil/error.hpp>

#include <exception>
#include <new>
#include <utility>

namespace VIGIL_DETAIL {

task_wait::~task_wait() {
  if (is_select_ || one_context_ != nullptr) [[unlikely]]
    drop_parts();
}

void task_wait::drop_parts() noexcept {
  if (is_select_) {
    delete select_;
  } else {
    delete one_context_;
  }
}

task_wait::context_part* task_wait::context_of_select() const noexcept {
  return select_->under.has_value() ? &*select_->under : nullptr;
}

void task_wait::keep_context(const wait_limit& limit) {
  one_context_ = new context_part(limit);
}

bool task_wait::look(select_case& c) noexcept {
  if (spend_calls() && must_give_way(*current_fiber())) [[unlikely]] {
    state_ = state::late;
    return false;
  }
  if (c.object == nullptr || !is_near(c) || !c.table->look(c)) return false;
  state_ = state::taken;
  return true;
}

// Goes to the end of the queue. Without memory for that the wait begins at once.
bool task_wait::begins_late(task_core& t, std::coroutine_handle<> h, select_case* c, choice mode) {
  std::coroutine_handle<> start;
  try {
    start = begin_in_turn(*this, t, h, c, mode).coroutine;
  } catch (const std::bad_alloc&) {
    return is_select_ ? begin_select(t, h, mode) : begin_now(t, h, c);
  }
  t.next = start;
  t.wanted = task_core::step::yield;
  return true;
}

task_wait::own_coroutine task_wait::begin_in_turn(
    task_wait& w, task_core& t, std::coroutine_handle<> h, select_case* c, choice mode) {
  bool begun = false;
  try {
    begun = w.is_select_ ? w.begin_select(t, h, mode) : w.begin_now(t, h, c);
  } catch (...) {
    w.fail();
  }
  if (!begun) t.next = h;  // otherwise the task may be gone
  co_return;
}

void task_wait::fail() noexcept {
  if (is_select_) {
    select_->error = std::current_exception();
  } else {
    ::new (static_cast<void*>(&error_)) std::exception_ptr(std::current_exception());
    state_ = state::failed;
  }
}

bool task_wait::begin(running_task& of, std::coroutine_handle<> h, select_case* c) {
  auto& t = static_cast<task_core&>(of);
  const bool is_late =
      state_ == state::late || (c == nullptr && spend_calls() && must_give_way(*current_fiber()));
  if (!is_late) [[likely]]
    return begin_now(t, h, c);
  state_ = state::none;
  if (timing_ == wait_limit::timing::within && time_ > 0) {  // counts from here
    time_ = saturating_add(t.service.sched().clock.now(), time_);
    timing_ = wait_limit::timing::until;
  }
  return begins_late(t, h, c, choice::fair);
}

bool task_wait::begin_now(task_core& t, std::coroutine_handle<> h, select_case* c) {
  const wait_limit limit{
      timing_, time_, under() != nullptr ? under()->kept.limit.cancelled_by : nullptr};
  task_ = &t;
  announcement waits(t, h);
  ticket opened = 0;
  if (c == nullptr) {
    opened = open_sleep(t, wait_reason::sleep);
  } else if (c->object == nullptr) {
    const bool sends = c->table == &send_case_table;
    opened = open_sleep(t, sends ? wait_reason::send_nil : wait_reason::recv_nil);
  } else if (!queue_one(t, *c, limit.is_over(), opened)) {  // reads a clock: without the lock
    return false;
  }
  return waits.stand(is_bounded(t, limit, opened, c));
}

// Waits for nothing but the time, the context and a stop.
ticket task_wait::open_sleep(task_core& t, wait_reason why) {
  if (t.must_stop()) throw_task_stopped(t);
  show(t, why, nullptr);
  state_ = state::open;
  return t.own_waiter.open(true);
}

// False if the case was taken, or if the time is over.
bool task_wait::queue_one(task_core& t, select_case& c, bool over, ticket& opened) {
  const case_look found = take_or_queue(c, over, {t.own_waiter, t.must_stop(), true});
  if (found == case_look::refused) throw_task_stopped(t);
  if (found == case_look::taken) state_ = state::taken;
  if (found != case_look::queued) return false;
  is_queued_ = true;
  state_ = state::open;
  opened = detail::place_of(c).opened;
  show(t, c.table->reason, shown_of(c));
  return true;
}

// Bounds the open wait by its limit, and looks for a stop. False if one of the two has
// ended it (TW2). If it throws, the wait is over and nothing is queued.
bool task_wait::is_bounded(task_core& t, const wait_limit& l, ticket opened, select_case* c) {
  scheduler& sched = t.service.sched();
  if (under() != nullptr) static_cast<open_wait&>(under()->entry) = {&t.own_waiter, opened};
  try {
    // The clock is read before the deadline is made, and exactly.
    const nanos deadline = l.is_relative() ? l.as_deadline(sched.clock.now()) : l.as_deadline(0);
    if (deadline != never) {
      sched.timers().arm(t.own_waiter, opened, deadline);
      is_timed_ = true;
    }
    if (under() != nullptr && !l.cancelled_by->begin_wait(under()->entry)) return false;
  } catch (...) {
    if (!t.own_waiter.claim(opened, outcome::cancelled)) return true;  // it has been ended
    if (is_timed_) sched.timers().disarm(t.own_waiter);
    take_back(c);
    throw;
  }
  // The stop's flag is set before it looks for an open ticket; the ticket was opened
  // before this look. One of the two sees the other.
  return !t.must_stop() || !t.own_waiter.claim(opened, outcome::stopped);
}

// Takes the places back, and notes whether a case has ended the wait.
void task_wait::take_back(select_case* c) noexcept {
  if (!std::exchange(is_queued_, false)) return;
  if (c == nullptr) {
    select_->taken = select_->several->take_back();
    if (select_->taken != selecting::none) state_ = state::taken;
    return;
  }
  if (detail::take_back(*c)) state_ = state::taken;
}

// Ends a wait that was open, and says how it ended; taken, if by a case.
outcome task_wait::close(select_case* c) noexcept {
  task_core& t = *task_;
  t.reason.store(wait_reason::none, order::relaxed);  // ordering: the dump's field
  const outcome ended = t.own_waiter.outcome();
  if (std::exchange(is_timed_, false) && ended != outcome::timeout)
    t.service.sched().timers().disarm(t.own_waiter);
  if (under() != nullptr) under()->kept.limit.cancelled_by->end_wait(under()->entry);
  take_back(c);
  return ended;
}

void task_wait::throw_if_ended(outcome ended) {
  if (ended == outcome::stopped) throw_task_stopped(*task_);
  if (ended == outcome::cancelled) throw_cancelled(*under()->kept.limit.cancelled_by);
}

bool task_wait::end(select_case* c) {
  if (state_ == state::taken) return true;
  if (state_ == state::failed) rethrow();
  return state_ == state::open && end_open(c);
}

bool task_wait::end_open(select_case* c) {
  const outcome ended = close(c);
  if (state_ != state::taken) throw_if_ended(ended);
  return state_ == state::taken;
}

// The error's only end: each wait that has failed comes here.
void task_wait::rethrow() {
  const std::exception_ptr error = std::move(error_);
  error_.~exception_ptr();
  state_ = state::none;
  std::rethrow_exception(error);
}

}  // namespace VIGIL_DETAIL
