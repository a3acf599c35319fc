// Nothing can ever happen again: who finds out, and what is done about it.
//
// The last worker that lies down looks (worker::rest), and on virtual time the
// one worker that has nothing to run. All workers sleep, so what was read
// cannot change but by threads from outside; those announce themselves as
// outside work, or the policy only warns.
#include "sched/process.hpp"
#include "sched/scheduler.hpp"

namespace vigil::internal {

// `asleep` is what all_asleep() said; all looks are between that and the last.
bool scheduler::looks_dead(std::uint64_t asleep) noexcept {
  // The caller has tidied: `never` also if all that is pending never comes due.
  if (alive() == 0 || has_outside_work() || next_deadline.load() != never) return false;
  if (!is_virtual() && finds_work()) return false;
  for (const auto& w : workers_) {
    if (w->inbox_filled_.load()) return false;
  }
  if (watched_signals_.load() != 0) return false;
  // A main fiber that sleeps, or selects from nothing, for ever waits for a signal of stop_on.
  if (!settings_.stop_on.empty() && main_only_waits()) return false;
  const run_phase phase = phase_.load();
  if (phase != run_phase::running && phase != run_phase::ending) return false;
  if (deadlocked_.load() || deadlock_warned_.load()) return false;
  return idle_.times_got_up() == asleep;
}

bool scheduler::maybe_deadlock(std::uint64_t asleep) noexcept {
  if (!looks_dead(asleep)) return false;
  if (waits_for_all() && all_done()) {
    tell_main();  // as does whoever took the last thing away, at this moment
    return false;
  }
  // A thread of the program's may have ended since, after it readied somebody:
  // once there is none, what is seen cannot change any more.
  const bool alone =
      is_virtual() || process_thread_count() == workers_.size() + process_quiet_threads();
  return looks_dead(asleep) && report_deadlock(alone);
}

bool scheduler::report_deadlock(bool alone) noexcept {
  using policy = scheduler_options::deadlock_policy;
  const bool is_fatal =
      settings_.deadlock == policy::fatal || (settings_.deadlock == policy::automatic && alone);
  if (is_fatal) {
    if (deadlocked_.exchange(true)) return false;
    warn(
        "deadlock: every fiber is parked, no timer is pending and no outside work is announced; "
        "nothing can ever happen again");
  } else {
    if (deadlock_warned_.exchange(true)) return false;
    warn(
        "every fiber is parked, no timer is pending and no outside work is announced: unless "
        "another thread of the program does something, nothing will ever happen again (announce "
        "such work with runtime::make_work_guard)");
  }
  process_dump(2);
  if (!is_fatal) return false;
  note_end();
  advance(run_phase::ending);
  stop_all();
  start_stopper();
  return true;
}

}  // namespace vigil::internal
