#include "core/timer/stop_waiters.hpp"

#include "core/base/clock_source.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/wait/wake_list.hpp"
#include "core/sched/worker/worker.hpp"
#include "core/timer/timer_service.hpp"

#include <vigil/error.hpp>

#include <string>

namespace VIGIL_DETAIL {
namespace {

// The calling fiber if it is in a run of t; nullptr otherwise.
const fiber* in_run_of(const timer_record& t) noexcept {
  const fiber* const f = current_fiber();
  // ordering: the fiber's own word.
  return f != nullptr && f->callback.timer.load(order::relaxed) == &t ? f : nullptr;
}

constexpr std::uint64_t any_halt = timer_record::halted | timer_record::lifted;

bool is_halted(const timer_record& t) noexcept {
  return (t.uses.load() & timer_record::halted) != 0;
}

}  // namespace

void stop_waiters::end_run(timer_record& t) noexcept {
  constexpr std::uint64_t change = timer_record::run_ended - timer_record::run;
  std::uint64_t left = t.uses.fetch_add(change) + change;
  if ((left & timer_record::all_runs) == 0 && (left & any_halt) != 0) [[unlikely]] {
    end_halt(t);
    left = t.uses.load();
  }
  if ((left & (timer_record::counts | timer_record::callback_destroyed)) != 0) return;
  if (t.when.load() > 0) return;
  if (t.uses.compare_exchange_strong(left, timer_record::callback_destroyed)) t.destroy_callback();
}

// SW1. If another run is counted by now, its end comes here as well.
void stop_waiters::end_halt(timer_record& t) noexcept {
  wake_list done;
  {
    const lock_guard guard(lock_);
    const std::uint64_t seen = t.uses.load();
    if ((seen & any_halt) == 0 || (seen & timer_record::all_runs) != 0) return;
    if ((seen & timer_record::halted) != 0) take_back(t);
    t.uses.fetch_and(~any_halt);
    t.must_ask.store(false);
    for (entry* e = entries_.front(); e != nullptr;) {
      entry& found = *e;
      e = entry_list::next(found);
      if (found.timer != &t) continue;
      entries_.remove(found);
      // A waiter whose wait has ended meanwhile takes itself out under this lock, so it
      // is alive here; it needs no delivery.
      done.claim(found, outcome::value);
    }
  }
  done.deliver(run_order::next);
}

void stop_waiters::take_back(timer_record& t) noexcept {
  if (t.service->stop(t)) note_prevented(t);
}

// One of those that wait is told, as of several that stop a timer one is.
void stop_waiters::note_prevented(const timer_record& t) noexcept {
  entry* e = entries_.front();
  while (e != nullptr && e->timer != &t)
    e = entry_list::next(*e);
  if (e != nullptr) e->prevented = true;
}

bool stop_waiters::is_awaited(const timer_record& t) const noexcept {
  for (const entry* e = entries_.front(); e != nullptr; e = entry_list::next(*e))
    if (e->timer == &t) return true;
  return false;
}

void stop_waiters::note_run(fiber& self, const timer_record& t) noexcept {
  const lock_guard guard(lock_);
  self.callback.after = t.last_lift;
}

bool stop_waiters::lets_arm(timer_record& t) noexcept {
  const lock_guard guard(lock_);
  const fiber* const in_run = in_run_of(t);
  if (!is_halted(t)) return in_run == nullptr || in_run->callback.after == t.last_lift;
  if (is_awaited(t) || in_run != nullptr) {
    note_prevented(t);
    return false;
  }
  t.last_lift = ++lifts_;
  t.uses.fetch_or(timer_record::lifted);
  t.uses.fetch_and(~timer_record::halted);
  return true;
}

// An arming by others that the halt has taken back, or a run has, came before the stop.
bool stop_waiters::lets_stand(timer_record& t) noexcept {
  const lock_guard guard(lock_);
  if (!is_halted(t)) return true;
  take_back(t);
  return false;
}

bool stop_waiters::wait(timer_record& t, const wait_limit& limit, const char* call) {
  // Nothing was armed and begun between the two looks, so nothing can be arming.
  constexpr std::uint64_t runs = ~(timer_record::halted - 1) | timer_record::all_runs;
  const std::uint64_t before = t.uses.load() & runs;
  bool prevented = t.service->stop(t);
  if ((before & timer_record::all_runs) == 0 && (t.uses.load() & runs) == before) return prevented;

  if (in_run_of(t) != nullptr) {
    throw wrong_place((std::string("vigil::") + call +
                       " inside the callback that it waits for would wait for itself: use stop()")
                          .c_str());
  }
  // On a worker's own stack the caller sleeps like a plain thread, since the end of a
  // scoped_timer must not throw; but not for long: the callback may need this worker.
  const bool in_handler = current_fiber() == nullptr && current_worker() != nullptr;
  constexpr nanos patience = 1'000'000'000;
  const nanos gives_up_at = in_handler ? monotonic_now() + patience : never;
  const bool may_give_up = gives_up_at < limit.as_deadline();
  caller self(may_give_up ? limit.until(gives_up_at) : limit);
  if (!in_handler && self.may_not_wait()) self.refuse(call);
  entry mine;
  mine.timer = &t;
  lock_.lock();
  t.must_ask.store(true);
  const std::uint64_t found = t.uses.fetch_or(timer_record::halted);
  prevented |= t.service->stop(t);
  // A callback that is destroyed has no run, even if one is counted for a moment.
  const bool is_over =
      (found & timer_record::all_runs) == 0 || (found & timer_record::callback_destroyed) != 0;
  if (is_over) {
    // If it was halted before, the end of the last run is about to end that.
    if ((found & any_halt) == 0) {
      t.uses.fetch_and(~timer_record::halted);
      t.must_ask.store(false);
    }
    lock_.unlock();
    return prevented;
  }
  // Not before: a thread that claims an open ticket readies the fiber, which must park.
  self.open(mine);
  entries_.push_back(mine);
  lock_.unlock();
  const outcome result = self.wait(mine.opened, wait_reason::stop_and_wait, [&] {
    const lock_guard guard(lock_);
    if (mine.hook.linked) entries_.remove(mine);
  });
  if (result == outcome::timeout && may_give_up) {
    fatal(
        "a handler of the library, on a worker's own stack, has waited 1 s for the callback of the "
        "timer made at %s:%u (the end of a scoped_timer, or stop_and_wait), which may need "
        "that worker: call stop() there, or let a fiber own the timer",
        t.made_at.file,
        t.made_at.line);
  }
  self.throw_if_ended(result);
  return prevented || mine.prevented;
}

}  // namespace VIGIL_DETAIL
