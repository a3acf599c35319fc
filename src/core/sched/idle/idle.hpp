// idle: which workers sleep, until when, and which one is to be woken.
//
// The danger. A worker looks for work, finds none and goes to sleep. Between its look
// and its sleep another thread adds work, or arms an earlier timer, sees nobody to wake,
// and goes away. The work then lies there for ever.
//
// The rule. Both sides publish first and look afterwards, all sequentially consistent:
//
//   worker that sleeps                      thread that adds work, or arms
//   IS1 publish: in sleepers_, earliest_,   IA1 publish: the queue, or
//       asleep_ + 1, then looking_ - 1          timer_board::next_deadline
//   IS2 look at every queue and at          IA2 look at looking_, asleep_ and
//       next_deadline once more                 earliest_
//   IS3 sleep                               IA3 wake a sleeper if need be
//
// In the one total order either IS1 comes before IA2, and the adder wakes a sleeper, or
// IA1 comes before IS2, and the worker sees the work itself.
//
// A worker that is looking (awake, without a fiber) does IS2 before it sleeps, so while
// one is looking nobody needs to be woken. A waker counts the worker as looking before
// it wakes it, so a burst of additions wakes one. Each worker that stops looking because
// it found something sees to the next one if there is more.
//
// The rules by which workers are woken, on one page: docs/internals/workers.md.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/nanos.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/idle/oversight.hpp"
#include "core/sched/idle/tuning.hpp"
#include "core/sched/idle/watch.hpp"
#include "core/sched/wait/note.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace VIGIL_DETAIL {

// A worker's place among the sleepers.
struct sleeper {
  list_hook<sleeper> hook;
  nanos until = never;         // guarded by idle_workers' lock; earlier() may move it
  nanos asked = never;         // `until` as it was on lying down; the worker's own
  watch* asleep_in = nullptr;  // where it sleeps; if null, on its note
  note own_note;
};

// The watcher, the one sleeper in the watch, alone hears of I/O. One other sleeper may
// sleep to the second deadline.
//
// Work is left to a worker in user code, while another sleeps and none looks, if it has
// readied something, or the watch is free although I/O is awaited or a deadline to which
// nobody sleeps. The overseer sees to it if it looks (oversight.hpp). If it does not, a
// sleeper is woken; and if that comes often, the overseer is called instead.
class idle_workers {
 public:
  explicit idle_workers(watch& w) noexcept : watch_(&w) {}

  oversight overseen;

  // --- by the worker itself, on its own stack
  void start_looking() noexcept { looking_.fetch_add(1); }

  // Stops looking without going to sleep. True if it was the last one awake that
  // looked: the caller then sees to what is left.
  bool stop_looking() noexcept { return looking_.fetch_sub(1) == 1; }

  // IS1. `next` and `second` are the two earliest deadlines. The caller then looks (IS2),
  // and calls sleep() or stay_awake().
  void lie_down(sleeper& s, nanos next, nanos second) noexcept VIGIL_EXCLUDES(lock_);

  // IS3. Sleeps until the deadline that was published, or `not_before` if that is later,
  // or until another thread wakes it. The caller is looking again when it returns.
  void sleep(sleeper& s, nanos not_before = 0) noexcept VIGIL_EXCLUDES(lock_);

  // The last look found something. The caller is looking again when it returns.
  void stay_awake(sleeper& s) noexcept VIGIL_EXCLUDES(lock_);

  // --- by any thread
  // IA2, IA3 for one piece of work: wakes one sleeper unless a worker looks.
  void wake_one() noexcept {
    if (asleep_.load() != 0 && looking_.load() == 0) wake_slowly(false);
  }

  // IA2, IA3 for work that is left to the worker that has it. True if the overseer sees
  // to it; otherwise a worker looks, was woken for it, or none sleeps.
  bool leave() noexcept {
    if (asleep_.load() == 0 || looking_.load() != 0) return false;
    return overseen.looks() || wake_slowly(true);
  }

  // IA2, IA3 for a deadline: makes sure that a sleeper, if there is one, sleeps no longer
  // than to `deadline`, unless a worker looks; if the watch is free, the deadline may be
  // left to the overseer.
  void cover(nanos deadline) noexcept {
    if (deadline < earliest_.load() && looking_.load() == 0) cover_slowly(deadline);
  }

  // The same for I/O: a watch that is free is left. Called before a worker enters user
  // code that was in the watch, or where I/O has come to be awaited.
  void staff_watch() noexcept {
    if (!watched_.load()) leave();
  }

  // From now on workers wait in this watch, and all that sleep look for it. Both watches
  // live as long as this does.
  void change_watch(watch& w) noexcept VIGIL_EXCLUDES(lock_);

  // The next two wake even while a worker looks.
  void wake(sleeper& s) noexcept VIGIL_EXCLUDES(lock_);  // this one, if it sleeps
  void wake_all() noexcept VIGIL_EXCLUDES(lock_);

  // A number other than 0 if all `workers` sleep, none of them to a deadline that has
  // come. While the number stays the same nobody has got up, so between two calls with
  // one answer only the caller and threads from outside can have changed anything.
  std::uint64_t all_asleep(std::size_t workers, nanos now) noexcept VIGIL_EXCLUDES(lock_);

  std::uint64_t wake_count() const noexcept { return wake_count_.load(); }

  // The earliest time to which a worker sleeps; nobody_sleeps if none does.
  static constexpr nanos nobody_sleeps = std::numeric_limits<nanos>::min();

  nanos earliest() const noexcept { return earliest_.load(); }

  unsigned asleep() const noexcept { return asleep_.load(); }

  unsigned looking() const noexcept { return looking_.load(); }

  bool is_watched() const noexcept { return watched_.load(); }

  // How many system calls waking has taken: a statistic.
  unsigned long wake_calls() const noexcept { return wake_calls_.get(); }

  // Work that is left counts as left often from now on. For tests.
  void count_as_traffic() noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    traffic_from_ = 0;
  }

 private:
  using sleeper_list = list<sleeper, &sleeper::hook>;

  bool wake_slowly(bool is_left) noexcept VIGIL_EXCLUDES(lock_);
  void cover_slowly(nanos deadline) noexcept VIGIL_EXCLUDES(lock_);
  bool leave_to_overseer() noexcept VIGIL_REQUIRES(lock_);
  nanos choose_deadline(nanos next, nanos second) const noexcept VIGIL_REQUIRES(lock_);
  void remove(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  void publish() noexcept VIGIL_REQUIRES(lock_);
  void rouse(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  sleeper* latest() const noexcept VIGIL_REQUIRES(lock_);

  spinlock lock_{lock_rank::idle};
  watch* watch_ VIGIL_GUARDED_BY(lock_);
  sleeper_list sleepers_ VIGIL_GUARDED_BY(lock_);
  nanos left_at_ VIGIL_GUARDED_BY(lock_) = 0;           // when something was left last
  unsigned left_in_a_row_ VIGIL_GUARDED_BY(lock_) = 0;  // each soon after the one before
  unsigned traffic_from_ VIGIL_GUARDED_BY(lock_) = tuning::traffic;
  alignas(cache_line) atomic<nanos> earliest_{nobody_sleeps};
  atomic<unsigned> asleep_{0};
  atomic<unsigned> looking_{0};
  // Written under the lock.
  atomic<bool> watched_{false};          // a worker is in the watch, or has not yet left it
  atomic<std::uint64_t> wake_count_{1};  // how often a worker got up
  own_counter wake_calls_;
};

}  // namespace VIGIL_DETAIL
