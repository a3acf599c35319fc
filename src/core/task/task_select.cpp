// How a task waits for the first of several cases (task_wait.cpp).
#include "core/sched/worker/turn_budget.hpp"
#include "core/task/task_wait.hpp"

#include <exception>
#include <memory>
#include <utility>

namespace VIGIL_DETAIL {

bool task_wait::begin(running_task& of,
                      std::coroutine_handle<> h,
                      select_case* const* cases,
                      std::size_t count,
                      choice mode) {
  auto& t = static_cast<task_core&>(of);
  task_ = &t;
  select_ = new select_part;
  is_select_ = true;
  select_->shown = {cases, count};
  if (spend_calls() && must_give_way(*current_fiber())) [[unlikely]] {
    select_->kept = std::make_unique<kept_cases>(cases, count);
    return begins_late(t, h, nullptr, mode);
  }
  return begin_select(t, h, mode);
}

bool task_wait::begin_select(task_core& t, std::coroutine_handle<> h, choice mode) {
  selecting& s = select_->several.emplace(select_->shown.cases, select_->shown.count, mode);
  if (s.limit().cancelled_by != nullptr) select_->under.emplace(s.limit());
  select_->kept.reset();
  const std::size_t taken = s.look_at_each();
  if (taken != selecting::none) {
    takes(taken);
    return false;
  }
  if (!s.has_prepared_cases()) return begin_round(t, h);
  select_->rounds = go_through_rounds(*this, t, h).coroutine;
  return begin_round(t, select_->rounds);
}

void task_wait::takes(std::size_t index) noexcept {
  state_ = state::taken;
  select_->taken = index;
}

// Begins a round of a select; those that have nothing to wait for follow one another.
// False if one was the last.
bool task_wait::begin_round(task_core& t, std::coroutine_handle<> h) {
  selecting& s = *select_->several;
  const awaited what = s.awaits(select_->shown);
  show(t, what.reason, what.object);
  for (;;) {
    s.begin_round();
    announcement waits(t, h);
    const std::size_t taken = s.take_or_queue({t.own_waiter, t.must_stop(), true});
    if (taken == selecting::refused) throw_task_stopped(t);
    if (taken == selecting::again) continue;
    if (taken != selecting::none) {
      takes(taken);
      return false;
    }
    state_ = state::open;
    is_queued_ = true;
    return waits.stand(is_bounded(t, s.round_limit(), s.open_ticket(), nullptr));
  }
}

// Ends a round. True if it was the last one.
bool task_wait::end_round(task_core& t, std::coroutine_handle<> h) noexcept {
  for (;;) {
    select_->ended = close();
    const bool goes_on = state_ == state::taken
                             ? select_->taken == selecting::again
                             : select_->ended == outcome::timeout && select_->several->ends_early();
    if (!goes_on) return true;
    state_ = state::none;
    try {
      if (begin_round(t, h)) return false;
    } catch (...) {
      select_->error = std::current_exception();
      return true;
    }
    if (state_ == state::taken) return true;
  }
}

// Resumes the coroutine `h` after the last round.
task_wait::own_coroutine task_wait::go_through_rounds(task_wait& w,
                                                      task_core& t,
                                                      std::coroutine_handle<> h) {
  while (!w.end_round(t, w.select_->rounds))
    co_await std::suspend_always();
  w.select_->rounds = {};
  t.next = h;
}

std::size_t task_wait::end_several() {
  struct at_end {
    ~at_end() { wait.leave_cases(); }

    task_wait& wait;
  } const leaves{*this};

  if (select_->error != nullptr) std::rethrow_exception(std::move(select_->error));
  if (state_ == state::open) {
    if (select_->ended == outcome::open) select_->ended = close();
    if (state_ != state::taken) throw_if_ended(select_->ended);
  }
  return state_ == state::taken ? select_->taken : select_->several->timed();
}

void task_wait::leave_cases() noexcept {
  if (is_select_) select_->several.reset();
}

}  // namespace VIGIL_DETAIL
