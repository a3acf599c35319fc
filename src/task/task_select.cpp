// How a task waits for the first of several cases (task_wait.cpp).
#include "sched/worker/turn_budget.hpp"
#include "task/task_wait.hpp"

#include <exception>
#include <memory>
#include <utility>

namespace VIGIL_DETAIL {

namespace {

class task_owner final : public select_owner {
 public:
  explicit task_owner(task_core& t) noexcept : task_(t) {}

  bool may_not_wait() const noexcept override { return task_.must_stop(); }

  waiter& self() noexcept override { return task_.self; }

  ticket open() noexcept override { return task_.self.open(true); }

  [[noreturn]] void refuse() override { throw_task_stopped(task_); }

 private:
  task_core& task_;
};

}  // namespace

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
  if (!s.waits_for_something()) return begin_timed(t, h, s);
  if (!s.has_prepared_cases()) return begin_round(t, h);
  select_->rounds = go_through_rounds(*this, t, h);
  return begin_round(t, select_->rounds.coroutine());
}

void task_wait::takes(std::size_t index) noexcept {
  state_ = state::taken;
  select_->taken = index;
}

// A select of which no case can come but by time.
bool task_wait::begin_timed(task_core& t, std::coroutine_handle<> h, const selecting& s) {
  if (s.otherwise() != selecting::none) {
    takes(s.otherwise());
    return false;
  }
  announcement waits(t, h);
  const ticket opened = open_sleep(t, wait_reason::select);
  return waits.stand(is_bounded(t, s.limit(), opened, nullptr));
}

// Begins a round of a select; those that have nothing to wait for follow one another.
// False if one was the last.
bool task_wait::begin_round(task_core& t, std::coroutine_handle<> h) {
  selecting& s = *select_->several;
  task_owner owner(t);
  show(t, wait_reason::select, &select_->shown);
  for (;;) {
    s.begin_round();
    announcement waits(t, h);
    const std::size_t taken = s.take_or_queue(owner);
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
    const outcome ended = close();
    const bool goes_on = state_ == state::taken
                             ? select_->taken == selecting::again
                             : ended == outcome::timeout && select_->several->ends_early();
    if (!goes_on) {
      // As if the wait were open still, for end_several().
      if (state_ != state::taken) state_ = state::open;
      return true;
    }
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
task_wait::round_loop task_wait::go_through_rounds(task_wait& w,
                                                   task_core& t,
                                                   std::coroutine_handle<> h) {
  while (!w.end_round(t, w.select_->rounds.coroutine()))
    co_await std::suspend_always();
  t.next = h;
}

std::size_t task_wait::end_several() {
  class at_end {
   public:
    explicit at_end(task_wait& w) noexcept : wait_(w) {}

    ~at_end() { wait_.leave_cases(); }

    at_end(const at_end&) = delete;
    at_end& operator=(const at_end&) = delete;

   private:
    task_wait& wait_;
  } const leaves(*this);

  if (select_->error != nullptr) std::rethrow_exception(std::move(select_->error));
  if (state_ == state::open) {
    // The last round has closed it, unless that was the first.
    const bool is_closed = select_->rounds.coroutine() && !is_queued_;
    const outcome ended = is_closed ? task_->self.outcome() : close();
    if (state_ != state::taken) throw_if_ended(ended);
  }
  return state_ == state::taken ? select_->taken : select_->several->timed();
}

void task_wait::leave_cases() noexcept {
  if (is_select_) select_->several.reset();
}

}  // namespace VIGIL_DETAIL
