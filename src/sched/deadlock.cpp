// Nothing can ever happen again: who finds out, and what is done about it.
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
#include "sched/process.hpp"
#include "sched/scheduler.hpp"

#include <mutex>

namespace vigil::internal {
namespace {

// Guards the rest, and keeps each runtime that it has from ending its run.
// Taken when a run begins or ends, and when all of a runtime sleeps with
// nothing pending.
std::mutex all_lock;

list<scheduler, &scheduler::among_all> all;

// While f says yes; whether it did for each.
template <class F>
bool for_all(F&& f) noexcept {
  for (scheduler* s = all.front(); s != nullptr; s = decltype(all)::next(*s)) {
    if (!f(*s)) return false;
  }
  return true;
}

}  // namespace

// The last worker lies down without a deadline first, and looks then; here it is the
// other way round. All sequentially consistent, so one sees the other. On virtual time
// a deadline does not end its sleep, and at the end of a deadlocked run it is the
// stop limit, which need not be waited for (can_only_give_up).
void deadlock_finder::look_again() noexcept {
  const bool may_rest = clock_.is_virtual() || next_deadline_.load() == never || has_found();
  if (may_rest && idle_.asleep() == workers_.size()) idle_.wake_all();
}

void scheduler::join_all() noexcept {
  const std::lock_guard guard(all_lock);
  all.push_back(*this);
}

// Whoever waits for this one waits for ever now, unless another goes on.
void scheduler::leave_all() noexcept {
  const std::lock_guard guard(all_lock);
  all.remove(*this);
  if (!all.empty()) look_at_all();
}

void scheduler::look_for_deadlock() noexcept {
  // Without the lock: most often it is this one that goes on.
  const std::uint64_t asleep = idle_.all_asleep(workers_.size(), monotonic_now());
  if (asleep == 0 || !looks_stuck(asleep)) return;
  const std::lock_guard guard(all_lock);
  look_at_all();
}

// `asleep` is what all_asleep() said; all looks are between that and the last.
bool scheduler::looks_stuck(std::uint64_t asleep) noexcept {
  // Who lay down has tidied: `never` also if all that is pending never comes due.
  if (fibers.alive() == 0 || outside.any() || next_deadline.load() != never) return false;
  if (finds_work()) return false;
  for (const auto& w : workers_) {
    if (w->inbox_filled_.load()) return false;
  }
  if (signals.is_watched()) return false;
  // It ends what waits for ever for the end of the run.
  if (waits_for_stop_signal()) return false;
  const run_phase phase = phase_.load();
  if (phase != run_phase::running && phase != run_phase::ending) return false;
  if (deadlocks.has_found()) return false;
  return idle_.times_got_up() == asleep;
}

// Caller: holds all_lock.
void scheduler::look_at_all() noexcept {
  const nanos now = monotonic_now();
  const bool all_rest = for_all([now](scheduler& s) {
    s.seen_asleep_ = s.idle_.all_asleep(s.workers_.size(), now);  // D1
    return s.seen_asleep_ != 0;
  });
  const auto all_look_stuck = [] {
    return for_all([](scheduler& s) { return s.looks_stuck(s.seen_asleep_); });  // D2
  };
  if (!all_rest || !all_look_stuck()) return;
  std::size_t workers = 0;
  bool is_news = false;
  bool somebody_ends = false;
  for_all([&](scheduler& s) {
    workers += s.workers_.size();
    is_news = is_news || !s.deadlocks.has_warned();
    if (s.waits_for_all() && s.all_done()) {
      s.something_ended();  // as does whoever took the last thing away, at this moment
      somebody_ends = true;
    }
    return true;
  });
  if (!is_news || somebody_ends) return;
  // A thread of the program's may have ended since, after it readied somebody:
  // once there is none, what is seen cannot change any more.
  const bool alone = process_has_only(workers);
  if (all_look_stuck()) report_deadlock(alone);
}

bool scheduler::deadlock_is_fatal(bool alone) const noexcept {
  return settings_.deadlock == on_deadlock::fatal ||
         (settings_.deadlock == on_deadlock::automatic && (alone || is_virtual()));
}

// Caller: holds all_lock; every runtime is stuck, and one that was not named yet.
void scheduler::report_deadlock(bool alone) noexcept {
  bool one_is_fatal = false;
  bool one_goes_on = false;
  for_all([&](scheduler& s) {
    if (!s.deadlocks.note_warned()) return true;
    if (s.deadlock_is_fatal(alone)) {
      s.deadlocks.note_found();
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
  for_all([](scheduler& s) {
    if (s.deadlocks.has_found()) s.end_deadlocked();
    return true;
  });
}

// Counted as a fiber of ours first, looked at the phase second; the main fiber
// closes first and looks at the count second (E5, E6 of end.cpp). So it is still
// there for the stopper, although it may be woken here or by a thread meanwhile.
void scheduler::end_deadlocked() noexcept {
  fibers.count_system(1);
  if (phase() < run_phase::closed) {
    note_end();
    advance(run_phase::ending);
    end_grace();  // whoever waits for its end wakes, and sees to the stop limit
    start_stopper();
  }
  fibers.count_system(-1);
}

}  // namespace vigil::internal
