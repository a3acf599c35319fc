// Nothing can ever happen again: how that is found out, and what is done about it.
//
// The danger. A runtime of which every worker sleeps, with nothing pending, may
// still be woken by a fiber of another one, which is about to sleep itself.
//
// The rule. All runtimes that run are looked at together, under one lock, by the
// worker that is the last of its runtime to lie down, and by the thread whose
// run has ended: whichever of them is the last finds all others at rest.
//
//   D1 each: all workers sleep, the caller's too (all_asleep), before any look
//      at what is pending
//   D2 each: nothing is pending, and nobody has got up since D1 (looks_stuck)
//
// Between the last of D1 and the first of D2 all workers of the process slept
// at once. A worker that readies somebody in another runtime takes a sleeper
// out there, or meets one that is awake, before it lies down itself; so nothing
// was on its way, and what D2 reads cannot change any more but by threads from
// outside. Those announce themselves as outside work, or the policy only warns.
// On virtual time the one worker lies down as well before it looks.
#include "sched/report/deadlock.hpp"

#include "base/assert.hpp"
#include "sched/idle.hpp"
#include "sched/ready_work.hpp"
#include "sched/run/outside_work.hpp"
#include "sched/run/process.hpp"
#include "sched/run/run_end.hpp"
#include "sched/run/signal_hub.hpp"

#include <mutex>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// Guards the rest, and keeps each runtime that it has from ending its run.
// Taken when a run begins or ends, and when all of a runtime sleeps with
// nothing pending.
std::mutex all_lock;

list<deadlock_finder, &deadlock_finder::among_all> all;

// While f says yes; whether it did for each.
template <class F>
bool for_all(F&& f) noexcept {
  for (deadlock_finder* one = all.front(); one != nullptr; one = decltype(all)::next(*one)) {
    if (!f(*one)) return false;
  }
  return true;
}

}  // namespace

// The last worker lies down without a deadline first, and looks then; here it is the
// other way round. All sequentially consistent, so one sees the other. On virtual time
// a deadline does not end its sleep, and at the end of a deadlocked run it is the
// stop limit, which need not be waited for (can_only_give_up).
void deadlock_finder::look_again() noexcept {
  const bool may_rest =
      of_.clock.is_virtual() || of_.next_deadline.load() == never || of_.state.deadlocked();
  if (may_rest && of_.idle.asleep() == of_.workers.size()) of_.idle.wake_all();
}

void deadlock_finder::join() noexcept {
  const std::lock_guard guard(all_lock);
  warned_.store(false);
  all.push_back(*this);
}

// A runtime that waits for this one waits for ever now, unless another goes on.
void deadlock_finder::leave() noexcept {
  const std::lock_guard guard(all_lock);
  all.remove(*this);
  if (!all.empty()) look_at_all();
}

void deadlock_finder::look() noexcept {
  // Without the lock: most often it is this one that goes on.
  const std::uint64_t asleep = of_.idle.all_asleep(of_.workers.size(), monotonic_now());
  if (asleep == 0 || !looks_stuck(asleep)) return;
  const std::lock_guard guard(all_lock);
  look_at_all();
}

// `asleep` is what all_asleep() said; all looks are between that and the last.
bool deadlock_finder::looks_stuck(std::uint64_t asleep) const noexcept {
  if (of_.fibers.alive() == 0 || of_.outside.any()) return false;
  // The worker has tidied: it is `never` even if what is pending never comes due.
  if (of_.next_deadline.load() != never) return false;
  if (of_.work.any() || of_.work.any_pinned() || of_.signals.is_watched()) return false;
  // It ends what waits for ever for the end of the run.
  if (of_.end.waits_for_stop_signal()) return false;
  const run_phase phase = of_.state.phase();
  if (phase != run_phase::running && phase != run_phase::ending) return false;
  if (of_.state.deadlocked()) return false;
  return of_.idle.times_got_up() == asleep;
}

// Caller: holds all_lock.
void deadlock_finder::look_at_all() noexcept {
  const nanos now = monotonic_now();
  const bool all_rest = for_all([now](deadlock_finder& one) {
    const std::size_t workers = one.of_.workers.size();
    one.seen_asleep_ = one.of_.idle.all_asleep(workers, now);  // D1
    return one.seen_asleep_ != 0;
  });
  const auto all_look_stuck = [] {
    return for_all([](deadlock_finder& one) { return one.looks_stuck(one.seen_asleep_); });  // D2
  };
  if (!all_rest || !all_look_stuck()) return;
  std::size_t workers = 0;
  bool is_news = false;
  bool somebody_ends = false;
  for_all([&](deadlock_finder& one) {
    workers += one.of_.workers.size();
    is_news = is_news || !one.warned_.load();
    run_end& end = one.of_.end;
    if (end.waits_for_all() && end.all_done()) {
      end.something_ended();  // as does whoever took the last thing away, at this moment
      somebody_ends = true;
    }
    return true;
  });
  if (!is_news || somebody_ends) return;
  // A thread of the program's may have ended since, after it readied somebody:
  // once there is none, what is seen cannot change any more.
  const bool alone = process_has_only(workers);
  if (all_look_stuck()) report(alone);
}

bool deadlock_finder::is_fatal(bool alone) const noexcept {
  const on_deadlock policy = of_.settings.deadlock;
  return policy == on_deadlock::fatal ||
         (policy == on_deadlock::automatic && (alone || of_.clock.is_virtual()));
}

// Caller: holds all_lock; every runtime is stuck, and one that was not named yet.
void deadlock_finder::report(bool alone) noexcept {
  bool one_is_fatal = false;
  bool one_goes_on = false;
  for_all([&](deadlock_finder& one) {
    if (one.warned_.exchange(true)) return true;
    if (one.is_fatal(alone)) {
      one.of_.state.note_deadlock();
      one_is_fatal = true;
    } else {
      one_goes_on = true;
    }
    return true;
  });
  if (all.size() > 1)
    warn("the %zu runtimes that run are stuck, on themselves or on each other:", all.size());
  if (one_is_fatal) {
    warn(
        "deadlock: every fiber is parked, no timer is pending and no outside work is announced; "
        "nothing can ever happen again");
  }
  if (one_goes_on) {
    warn(
        "every fiber is parked, no timer is pending and no outside work is announced: unless "
        "another thread of the program does something, nothing will ever happen again (announce "
        "such work with runtime::make_work_guard)");
  }
  process_dump(2);
  for_all([](deadlock_finder& one) {
    if (one.of_.state.deadlocked()) one.of_.end.begin_by_deadlock();
    return true;
  });
}

// --- the end of a deadlocked run
//
// The stop has unwound whom it can: what it lets go of, others have taken. If all
// rest again, and only the stop limit is to come, then each fiber left waits for a
// lock of another that is left, or for what never comes. So the waits for locks end
// as well, all of them: which of them form the ring nobody knows, since a mutex
// does not know its owner. As often as it takes; what is left after that is for the
// stop limit. It is not given up sooner: a thread from outside that is no longer
// outside work may have claimed the main fiber's wait, and not readied it yet.
// Such a wait is never one for a lock: the thread takes away the last fiber, timer
// or call for which the main fiber waits (end_listener).

bool deadlock_finder::can_only_give_up(std::uint64_t asleep) const noexcept {
  // The worker that stops all may count as asleep; the stopper is started afterwards, so
  // somebody rests after that.
  if (!of_.state.deadlocked() || !of_.state.all_stopped()) return false;
  if (of_.state.phase() != run_phase::stopping || of_.outside.any()) return false;
  const nanos limit = of_.state.gives_up_at();
  if (limit == 0 || of_.next_deadline.load() < limit || of_.signals.is_watched()) return false;
  if (!of_.clock.is_virtual() && of_.work.any()) return false;
  return !of_.work.any_pinned() && of_.idle.times_got_up() == asleep;
}

bool deadlock_finder::end_lock_waits() noexcept {
  bool some = false;
  of_.fibers.for_each([&some](fiber& f) {
    if (!f.self.claim_deadlock()) return;
    f.self.deliver();
    some = true;
  });
  return some;
}

}  // namespace vigil::inline VIGIL_ABI::detail
