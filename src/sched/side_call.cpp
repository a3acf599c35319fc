// The scheduler's half of functions on side pools: side_call.hpp.
#include "sched/side_call.hpp"

#include "sched/park.hpp"
#include "sched/process.hpp"
#include "sched/scheduler.hpp"
#include "sched/written_name.hpp"

#include <optional>
#include <thread>

namespace vigil::internal {

void scheduler::call_begins(side_call& c) noexcept {
  outside.add();
  calls_under_way_.fetch_add(1);
  const lock_guard guard(calls_lock_);
  calls_.push_back(c);
}

// True: nobody waits, the record is the caller's, who then calls call_over().
bool scheduler::call_returned(side_call& c) noexcept {
  waiter* waits = nullptr;
  const bool in_virtual = is_virtual();
  std::optional<visit> inside;
  if (in_virtual) inside.emplace(visitors_);  // once done, the call holds the run no more
  {
    const lock_guard guard(calls_lock_);
    if (c.left) {
      calls_.remove(c);
      return true;
    }
    c.done = true;
    if (!in_virtual) {
      calls_.remove(c);
      // Claimed under the lock: who waits leaves under it, so he is alive here.
      if (c.waits.claim(outcome::value)) waits = c.waits.waiter;
    }
  }
  if (in_virtual) {
    idle_.wake_all();  // it may be the last one: take_in_calls()
    return false;
  }
  if (waits != nullptr) waits->deliver();
  call_over();
  return false;
}

call_fate scheduler::leave_call(side_call& c) noexcept {
  call_fate fate = call_fate::over;
  {
    const lock_guard guard(calls_lock_);
    if (!c.done) {
      if (!c.withdraw()) {  // C4
        c.left = true;
        return call_fate::left;
      }
      fate = call_fate::withdrawn;
    }
    if (!c.hook.linked) return fate;  // over already
    calls_.remove(c);
  }
  call_over();
  return fate;
}

// From threads outside too. The main fiber may end the run as soon as the count
// is down: the destructor waits for who is in here.
void scheduler::call_over() noexcept {
  const visit inside(visitors_);
  calls_under_way_.fetch_sub(1);
  outside.end();
  if (is_virtual()) idle_.wake_all();
  something_ended();
}

void scheduler::wait_for_calls() const noexcept {
  while (calls_under_way_.load() != 0)
    std::this_thread::yield();
}

// --- virtual time: C3

bool scheduler::all_calls_done() noexcept {
  const lock_guard guard(calls_lock_);
  if (calls_.size() != calls_under_way_.load()) return false;  // one is being dropped
  for (side_call* c = calls_.front(); c != nullptr; c = call_list::next(*c)) {
    if (!c->done) return false;
  }
  return true;
}

// Caller: the one worker, on its own stack, so nobody runs meanwhile. False if
// one is still under way.
bool scheduler::take_in_calls() noexcept {
  if (!all_calls_done()) return false;
  for (;;) {
    side_call* c = nullptr;
    {
      const lock_guard guard(calls_lock_);
      c = calls_.pop_front();
    }
    if (c == nullptr) return true;
    if (c->waits.claim(outcome::value)) c->waits.waiter->deliver();
    call_over();
  }
}

// Until a call comes in. The virtual clock stands still, so while the run ends
// the real one counts the stop limit.
void scheduler::sleep_for_calls(worker& w) noexcept {
  nanos until = never;
  if (stopping()) {
    const nanos limit = stop_limit();
    if (calls_given_up_at_ == 0) calls_given_up_at_ = saturating_add(monotonic_now(), limit);
    until = calls_given_up_at_;
    if (monotonic_now() >= until) stop_limit_passed(limit);
  }
  idle_.start_looking();
  idle_.lie_down(w.place, until, never);
  if (w.sees_work() || calls_under_way_.load() == 0 || all_calls_done()) {
    idle_.stay_awake(w.place);
  } else {
    idle_.sleep(w.place);
  }
  idle_.stop_looking();
}

void scheduler::name_calls() noexcept {
  const nanos now = monotonic_now();
  const lock_guard guard(calls_lock_);
  for (side_call* c = calls_.front(); c != nullptr; c = call_list::next(*c)) {
    if (c->done) continue;
    warn("  a function on a side pool, called %.3f s ago by fiber %llu (%s) at %s:%u",
         static_cast<double>(now - c->since) / 1e9,
         static_cast<unsigned long long>(c->fiber_id),
         written_name(c->fiber_name).text(),
         c->from.file,
         c->from.line);
  }
}

}  // namespace vigil::internal
