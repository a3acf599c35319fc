#include "core/sched/worker/turn_budget.hpp"

#include "core/sched/worker/park_check.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sched/worker/worker.hpp"

#include <limits>
#include <utility>

namespace VIGIL_DETAIL {

// `used`: the functions by which it is read name it in assembler.
[[gnu::used]] constinit thread_local int calls_left = 0;

namespace {

[[gnu::noinline]] void set_count_of_thread(int n) noexcept {
  asm volatile("");
  calls_left = n;
}

// Lends nothing while each call is to be looked at.
bool is_each_looked_at() noexcept {
  // ordering: a setting.
  return installed_park_check.load(order::relaxed) != nullptr;
}

// Asks the thread's worker; false where there is no budget, which is told to the count.
bool is_turn_over(worker* w) noexcept {
  if (w == nullptr) {
    set_count_of_thread(std::numeric_limits<int>::max());
    return false;
  }
  return w->budget.take_stock(w->counters.switches.get());
}

}  // namespace

#if !defined(__x86_64__) || defined(__ILP32__)
[[gnu::noinline]] int calls_of_thread() noexcept {
  asm volatile("");
  return calls_left;
}

[[gnu::noinline]] bool spend_calls(int n) noexcept {
  asm volatile("");
  return (calls_left -= n) < 0;
}
#endif

turn_budget::turn_budget(std::uint32_t most) noexcept
    : is_limited_(most != 0), most_(static_cast<int>(most != 0 ? most : options{}.turn_budget)) {}

void turn_budget::begin() noexcept {
  left_ = most_;
  lent_ = is_each_looked_at() ? 0 : left_ - 1;
  set_count_of_thread(lent_);
}

void turn_budget::count_up() noexcept {
  const int spent = lent_ - calls_of_thread();
  spent_ += static_cast<std::uint64_t>(spent);
  left_ -= spent;
}

bool turn_budget::take_stock(std::uint64_t switches) noexcept {
  count_up();
  bool is_used_up = false;
  if (left_ <= 0) {
    is_used_up = is_limited_ && seen_switches_ == switches;
    seen_switches_ = switches;
    left_ = most_;
  }
  lent_ = is_each_looked_at() ? 0 : left_ - 1;
  set_count_of_thread(lent_);
  return is_used_up;
}

std::uint64_t turn_budget::take_spent() noexcept {
  count_up();
  lent_ = calls_of_thread();
  return std::exchange(spent_, 0);
}

void count_work(worker& w, const fiber& f) noexcept {
  w.sched.at_instant.add(f, 1 + w.budget.take_spent());
}

fiber* give_way() noexcept {
  worker* const w = current_worker();
  const bool is_over = is_turn_over(w);
  fiber* const self = w != nullptr ? w->current : nullptr;
  if (self == nullptr || self->role == fiber_role::timer || self->guards.no_parks != 0)
    return nullptr;
  fiber* const checked =
      is_each_looked_at() && self->guards.call == call_check::none ? self : nullptr;
  if (checked != nullptr) self->guards.call = call_check::open;
  if (is_over) {
    about_to_leave(*self, wait_reason::none);
    w->read_clock_next();  // many calls were made since
    w->yield();
  } else if (self->sched->clock.is_virtual()) {
    detail::count_work(*w, *self);
  }
  return checked;
}

void end_checked_call(fiber& self) noexcept {
  if (std::exchange(self.guards.call, call_check::none) == call_check::done) return;
  // Pairs with the release of the one who installs it.
  if (const park_check check = installed_park_check.load(order::acquire))
    check(self, leaving::was_served, wait_reason::none);
}

// A guard belongs to the runner, and a task that left it behind would end the program.
bool must_give_way(fiber& runner) noexcept {
  worker& w = *current_worker();
  const bool is_over = is_turn_over(&w);
  const bool is_guarded =
      (runner.guards.shields | runner.guards.no_parks | runner.guards.pins) != 0;
  if (is_over && !is_guarded) {
    w.budget.end_turn();
    w.read_clock_next();
    return true;
  }
  if (runner.sched->clock.is_virtual()) detail::count_work(w, runner);
  return false;
}

}  // namespace VIGIL_DETAIL
