// How a state in which nothing can ever happen again is found, and what is done then.
//
// The danger. A runtime whose workers all sleep, with nothing pending, may still be woken
// by a fiber of another runtime, which is about to sleep itself.
//
// The rule. All runtimes that run are looked at together, under one lock, by the worker
// that is the last of its runtime to lie down, and by the thread whose run has ended: the
// last of these finds all others at rest.
//
//   DL1 each: all workers sleep, the caller's too (all_asleep), before any look
//       at what is pending
//   DL2 each: nothing is pending, and no worker has got up since DL1 (looks_stuck)
//
// Between the last DL1 and the first DL2 all workers of the process slept at once. A
// worker that readies a fiber in another runtime takes a sleeper out there, or meets a
// worker that is awake, before it lies down itself. So nothing was on its way, and only
// threads from outside can still change what DL2 reads. Those announce themselves as
// outside work, or the policy only warns. On virtual time the one worker lies down before
// it looks as well.
#include "core/sched/run/deadlock.hpp"

#include "core/base/assert.hpp"
#include "core/machine/process_threads.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/run/run_end.hpp"
#include "core/sched/wait/cancel_tree.hpp"
#include "core/sched/wait/wake_list.hpp"
#include "core/sched/worker/ready_work.hpp"

#include <mutex>

namespace VIGIL_DETAIL {
namespace {

// Guards the list, and keeps each runtime in it from ending its run. Taken when a run
// begins or ends, and when all of a runtime sleeps with nothing pending.
std::mutex all_lock;

list<deadlock_finder, &deadlock_finder::among_all> all_finders;

// Calls f with each runtime until one call returns false. True if none did.
template <class F>
bool for_all(F&& f) noexcept {
  for (deadlock_finder* one = all_finders.front(); one != nullptr;
       one = decltype(all_finders)::next(*one)) {
    if (!f(*one)) return false;
  }
  return true;
}

}  // namespace

void deadlock_finder::join() noexcept {
  const std::lock_guard guard(all_lock);
  warned_.store(false);
  all_finders.push_back(*this);
}

// A runtime that waits for this one waits for ever from now on, unless another goes on.
void deadlock_finder::leave() noexcept {
  const std::lock_guard guard(all_lock);
  all_finders.remove(*this);
  if (!all_finders.empty()) look_at_all();
}

void deadlock_finder::look() noexcept {
  // Looks without the lock first: most often it is this runtime that goes on.
  const std::uint64_t asleep = sched_.idle().all_asleep(sched_.workers().size(), monotonic_now());
  if (asleep == 0 || !looks_stuck(asleep)) return;
  const std::lock_guard guard(all_lock);
  look_at_all();
}

// `asleep` is the answer of all_asleep(). All looks here lie between that call and the
// last line, which finds that no worker has got up.
bool deadlock_finder::looks_stuck(std::uint64_t asleep) const noexcept {
  if (sched_.settings().is_guest) return false;
  if (sched_.fibers.alive() == 0 || sched_.outside.any()) return false;
  // The worker has tidied: the word is `never` even if a pending timer never comes due.
  if (sched_.board.next_deadline.load() != never) return false;
  if (any_work(sched_) || any_pinned_work(sched_) || sched_.signals.is_watched()) return false;
  // Such a signal ends the waits for the end of the run.
  if (end_.waits_for_stop_signal()) return false;
  // So does a handler in the io_context that calls request_stop(); Asio does not say
  // whether there is one.
  if (waits_for_request() && sched_.watches().present().knows_io()) return false;
  const run_phase phase = sched_.state.phase();
  if (phase != run_phase::running && phase != run_phase::ending) return false;
  if (sched_.state.deadlocked()) return false;
  return sched_.idle().wake_count() == asleep;
}

// Caller: holds all_lock.
void deadlock_finder::look_at_all() noexcept {
  const nanos now = monotonic_now();
  const bool all_rest = for_all([now](deadlock_finder& one) {
    const std::size_t workers = one.sched_.workers().size();
    one.seen_asleep_ = one.sched_.idle().all_asleep(workers, now);  // DL1
    return one.seen_asleep_ != 0;
  });
  const auto all_look_stuck = [] {
    return for_all([](deadlock_finder& one) { return one.looks_stuck(one.seen_asleep_); });  // DL2
  };
  if (!all_rest || !all_look_stuck()) return;
  std::size_t workers = 0;
  bool is_news = false;
  bool somebody_ends = false;
  for_all([&](deadlock_finder& one) {
    workers += one.sched_.workers().size();
    is_news = is_news || !one.warned_.load();
    run_end& end = one.end_;
    if (end.waits_for_all() && end.all_done()) {
      // The thread that took the last thing away does so, too.
      one.sched_.ending.something_ended();
      somebody_ends = true;
    }
    return true;
  });
  if (!is_news || somebody_ends) return;
  // A thread of the program's may have readied a fiber and ended since. Once there is no
  // such thread, nothing seen here can change any more.
  const bool alone = process_has_only(workers);
  const auto none_hears_threads = [] {
    return for_all([](deadlock_finder& one) { return !one.hears_threads(); });
  };
  if (!alone && !none_hears_threads()) return;
  if (all_look_stuck()) report(alone);
}

// Whether a fiber waits in the channel of the root context's end: for request_stop().
bool deadlock_finder::waits_for_request() const noexcept {
  const cancel_node* const top = end_.root.load();
  return top != nullptr && top->is_awaited();
}

// Whether a fiber waits for a request_stop(), which any thread of the program's may call.
bool deadlock_finder::hears_threads() const noexcept {
  return !sched_.clock.is_virtual() && waits_for_request();
}

bool deadlock_finder::is_fatal(bool alone) const noexcept {
  const on_deadlock policy = sched_.settings().deadlock;
  return policy == on_deadlock::fatal ||
         (policy == on_deadlock::automatic && (alone || sched_.clock.is_virtual()));
}

// Caller: holds all_lock; every runtime is stuck, at least one of them unreported.
void deadlock_finder::report(bool alone) noexcept {
  bool one_is_fatal = false;
  bool one_goes_on = false;
  for_all([&](deadlock_finder& one) {
    if (one.warned_.exchange(true)) return true;
    if (one.is_fatal(alone)) {
      one.sched_.state.note_deadlock();
      one_is_fatal = true;
    } else {
      one_goes_on = true;
    }
    return true;
  });
  if (all_finders.size() > 1)
    warn("the %zu runtimes that run are stuck, on themselves or on each other:",
         all_finders.size());
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
  process_dump(2, dump_place::program);
  const auto for_those_that_end = [](auto&& f) {
    for_all([&f](deadlock_finder& one) {
      if (one.sched_.state.deadlocked()) f(one);
      return true;
    });
  };
  // In this order: a worker may run what is readied while this thread is still here, and
  // open a wait for a lock that is about to be handed over.
  wake_list claimed;
  for_those_that_end([&claimed](deadlock_finder& one) { one.claim_lock_waits(claimed); });
  for_those_that_end([](deadlock_finder& one) { one.end_.begin_by_deadlock(); });
  claimed.deliver();
}

// A stop does not end a wait for a lock, since the state behind the lock has to be put in
// order first. Those that are open while all rests are a part of the deadlock. One that
// is opened later, as fibers clean up, waits for another that runs.
void deadlock_finder::claim_lock_waits(wake_list& claimed) noexcept {
  sched_.fibers.for_each([&claimed](fiber& f) {
    if (f.own_waiter.claim_deadlock()) claimed.add(f.own_waiter);
  });
}

}  // namespace VIGIL_DETAIL
