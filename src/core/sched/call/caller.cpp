#include "core/sched/call/caller.hpp"

#include "core/base/assert.hpp"
#include "core/base/at_end.hpp"
#include "core/base/clock_source.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/idle/watch.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <vigil/error.hpp>

#include <string>

namespace VIGIL_DETAIL {

caller::caller(const wait_limit& limit, mode m, const worker* on) noexcept
    : fiber_(on != nullptr ? on->current : nullptr), kept_(limit) {
  if (fiber_ == nullptr) {
    thread_.emplace();
  } else if (m != unstoppable && fiber_->guards.shields == 0 && on->exceptions_in_flight() == 0) {
    stoppable_ = m == stoppable;
    for_lock_ = m == for_lock && fiber_->guards.relocks == 0;
  }
}

bool caller::may_not_wait() const noexcept {
  if (fiber_ == nullptr) return current_worker() != nullptr || is_handlers_thread();
  return fiber_->guards.no_parks != 0 || must_stop();
}

bool caller::must_stop() const noexcept {
  return stoppable_ && fiber_->sched->state.must_stop(*fiber_);
}

void caller::refuse(const char* call) const {
  if (fiber_ == nullptr) {
    throw wrong_place((std::string("vigil::") + call +
                       ": it would have to wait on a worker's own stack, inside a handler of the "
                       "library; use a try_ form there, or start a fiber with go")
                          .c_str());
  }
  check_may_park(*fiber_);
  throw_stopped(*fiber_);
}

outcome caller::wait(ticket t, awaited what) {
  if (fiber_ != nullptr) return detail::wait(*fiber_, t, what, kept_.limit, stoppable_);
  process_check_fork("a wait");
  const outcome ended = sleep(t, what.reason);
  thread_->sleep.clear();  // for the next wait: no wake is to come
  return ended;
}

outcome caller::wait_asleep(ticket t) {
  current_worker()->counters.sleeps_begun.add();
  // Possibly on another worker.
  const at_end counted([] { current_worker()->counters.sleeps_ended.add(); });
  return wait(t, wait_reason::sleep);
}

// The thread that claims the ticket wakes the note, once; so if a claim beats the
// deadline, this waits for its wake.
outcome caller::sleep_alone(ticket t, nanos deadline) noexcept {
  if (!thread_->sleep.sleep_until(deadline)) {
    if (thread_->own_waiter.claim(t, outcome::timeout)) return outcome::timeout;
    thread_->sleep.sleep_until(never);
  }
  return thread_->own_waiter.outcome();
}

// A send in a program whose main() has forgotten vigil::run waits for a receiver that
// never begins.
outcome caller::sleep_without_runtime(ticket t, nanos deadline) noexcept {
  constexpr nanos patience = 3'000'000'000;
  static atomic<bool> is_told{false};
  const nanos tells_at = saturating_add(monotonic_now(), patience);
  if (!is_told.load() && tells_at < deadline) {
    if (thread_->sleep.sleep_until(tells_at)) return thread_->own_waiter.outcome();
    if (!runtime_was_made.load() && !is_told.exchange(true)) {
      warn(
          "a send has waited for 3 s on a plain thread, in a process that has never had a runtime: "
          "fibers run only inside vigil::run (or vigil::runtime, vigil::guest_runtime). It waits "
          "on, "
          "since another thread may receive");
    }
  }
  return sleep_alone(t, deadline);
}

outcome caller::sleep(ticket t, wait_reason reason) noexcept {
  const nanos deadline = kept_.limit.as_deadline();
  cancel_node* const node = kept_.limit.cancelled_by;
  if (reason == wait_reason::send && node == nullptr && !runtime_was_made.load())
    return sleep_without_runtime(t, deadline);
  if (node == nullptr) return sleep_alone(t, deadline);
  queued_waiter entry(open_wait{&thread_->own_waiter, t});
  if (!node->begin_wait(entry)) return outcome::cancelled;
  const outcome result = sleep_alone(t, deadline);
  node->end_wait(entry);
  return result;
}

void caller::throw_if_ended(outcome result) const {
  if (result == outcome::stopped) throw_stopped(*fiber_);
  if (result == outcome::deadlock) throw_deadlock(*fiber_);
  if (result == outcome::cancelled) throw_cancelled(*kept_.limit.cancelled_by);
}

}  // namespace VIGIL_DETAIL
