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
// it found something wakes the next one if there is more.
//
// Naps, the watcher and its deputy: docs/internals/workers.md.
#pragma once

#include "base/atomic.hpp"
#include "base/intrusive_list.hpp"
#include "base/nanos.hpp"
#include "base/spinlock.hpp"
#include "sched/wait/note.hpp"
#include "sched/watch.hpp"
#include "sched/watch_absences.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace VIGIL_DETAIL {

// A worker's place among the sleepers.
struct sleeper {
  list_hook<sleeper> hook;
  nanos until = never;  // guarded by idle_workers' lock; earlier() may move it
  nanos asked = never;  // `until`, or its alarm, as it was on lying down; the worker's own
  bool in_watch = false;
  detail::watch* watch = nullptr;  // if in_watch
  detail::note note;               // where it sleeps if not in the watch
};

// The watcher, the one sleeper in the watch, alone hears of I/O. While the watch is left
// often, leaving it wakes nobody: another sleeper, the deputy, has an alarm.
//
// WA1 The watch becomes free under the lock, and attended_ says so; only then does the
//     worker that has left look whether an alarm is set. The deputy turns its alarm off
//     under the lock, and only while a worker is in the watch, or as it gets up.
// WA2 While the watch is free an alarm is set, at most watch_absences::far after it was
//     left, and is for all deadlines, I/O and work. If it rings when the watch has been
//     free for watch_absences::near, the deputy gets up, and finds whatever was left to it.
// WA3 A worker takes the watch before its last look, and does not sleep there if that
//     finds work, or a deadline to which nobody sleeps. So once it sleeps nothing is left
//     to the alarm any more.
class idle_workers {
 public:
  explicit idle_workers(watch& w) noexcept : watch_(&w) {}

  // --- by the worker itself, on its own stack
  void start_looking() noexcept { looking_.fetch_add(1); }

  // Stops looking without going to sleep. True if it was the last one awake that
  // looked: the caller then wakes another one if there is more to do.
  bool stop_looking() noexcept { return looking_.fetch_sub(1) == (somebody_naps() ? 2u : 1u); }

  // IS1. `next` and `second` are the two earliest deadlines. The caller then looks (IS2),
  // and calls sleep() or stay_awake().
  void lie_down(sleeper& s, nanos next, nanos second) noexcept VIGIL_EXCLUDES(lock_);

  // IS3. Sleeps until the deadline that was published, or `not_before` if that is later,
  // until another thread wakes it, or until its alarm calls it, but not past `not_after`,
  // which was not published: nobody covers it. The caller is looking again when it
  // returns. `has_reason`: whether the worker has to get up for what another thread did
  // before it woke the note itself, or for `not_after`.
  template <class F = bool (*)()>
  void sleep(
      sleeper& s,
      nanos not_before = 0,
      F has_reason = [] { return false; },
      nanos not_after = never) noexcept VIGIL_EXCLUDES(lock_) {
    nanos until = s.asked < not_before ? not_before : s.asked;
    do {
      wait(s, until < not_after ? until : not_after);
    } while (sleeps_on(s, until) && !has_reason());
    stay_awake(s);
  }

  // The last look found something. The caller is looking again when it returns.
  void stay_awake(sleeper& s) noexcept VIGIL_EXCLUDES(lock_);

  // Publishes a nap. False if another worker naps: then there is none. The caller is
  // looking, and stays so; it looks for work that may not wait, calls nap() if there
  // is none, and get_up().
  bool settle_to_nap(sleeper& s, nanos until) noexcept VIGIL_EXCLUDES(lock_);

  void nap(sleeper& s, nanos until) noexcept { wait(s, until); }

  void get_up(sleeper& s) noexcept VIGIL_EXCLUDES(lock_);

  // The watch counts as left often from now on. For tests, before workers run.
  void count_as_busy() noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    absences_.leaves_before_busy = 0;
  }

  // --- by any thread
  // IA2, IA3 for one piece of work: wakes one sleeper unless a worker looks.
  // `may_wait`: the work may wait for as long as a nap.
  void wake_one(bool may_wait = false) noexcept {
    if (nobody_rests()) return;
    if (looking_.load() == 0) {
      wake_one_slowly();
    } else if (!may_wait && somebody_naps()) {
      rouse_napper();
    }
  }

  bool somebody_naps() const noexcept { return nap_until_.load() != nobody_sleeps; }

  bool nobody_rests() const noexcept { return asleep_.load() == 0 && !somebody_naps(); }

  // IA2, IA3 for a deadline: makes sure that a sleeper, if there is one, sleeps no longer
  // than to `deadline`, or has an alarm that rings soon, unless a worker looks.
  void cover(nanos deadline) noexcept {
    if (deadline < nap_until_.load()) {
      rouse_napper();
    } else if (deadline < earliest_.load() && looking_.load() == 0) {
      cover_slowly(deadline);
    }
  }

  // Sends another worker to the watch, if one sleeps and none looks; after a while, if
  // the watch has been left often of late. Called before a worker that was in the watch
  // enters user code, and when I/O comes to be awaited.
  void staff_watch() noexcept {
    if (attended_.load() == attention::none) staff_watch_slowly();
  }

  // The same for work that its worker keeps for a moment. False if no alarm is set for
  // it: the caller then wakes a worker instead.
  bool leave_to_alarm() noexcept;

  // From now on workers wait in this watch; a worker in the other one comes out. Both
  // watches live as long as this does.
  void change_watch(watch& w) noexcept VIGIL_EXCLUDES(lock_);

  // The next two wake even while a worker looks.
  void wake(sleeper& s) noexcept VIGIL_EXCLUDES(lock_);  // this one, if it sleeps
  void wake_all() noexcept VIGIL_EXCLUDES(lock_);

  // A number other than 0 if all `workers` sleep, none of them to a deadline that has
  // come. While the number stays the same nobody has got up, so between two calls with
  // one answer only the caller and threads from outside can have changed anything.
  std::uint64_t all_asleep(std::size_t workers, nanos now) noexcept VIGIL_EXCLUDES(lock_);
  std::uint64_t wake_count() noexcept VIGIL_EXCLUDES(lock_);

  // The earliest time to which a worker sleeps; nobody_sleeps if none does, and a time
  // before all deadlines while an alarm is for them.
  static constexpr nanos nobody_sleeps = std::numeric_limits<nanos>::min();

  nanos earliest() const noexcept { return earliest_.load(); }

  unsigned asleep() const noexcept { return asleep_.load(); }

  unsigned looking() const noexcept { return looking_.load(); }

  // How many system calls waking has taken: a statistic.
  unsigned long wake_calls() const noexcept { return wake_calls_.get(); }

 private:
  friend struct test_access;
  using sleeper_list = list<sleeper, &sleeper::hook>;

  // I/O and deadlines are attended to by nobody, by the deputy when its alarm rings, or
  // by the watcher.
  enum class attention : std::uint8_t { none, alarm, watch };

  void wake_one_slowly() noexcept VIGIL_EXCLUDES(lock_);
  void staff_watch_slowly() noexcept VIGIL_EXCLUDES(lock_);

  bool set_alarm() noexcept VIGIL_REQUIRES(lock_);
  bool sleeps_on(sleeper& s, nanos& until) noexcept VIGIL_EXCLUDES(lock_);
  void cover_slowly(nanos deadline) noexcept VIGIL_EXCLUDES(lock_);
  void rouse_napper() noexcept VIGIL_EXCLUDES(lock_);
  void end_nap() noexcept VIGIL_REQUIRES(lock_);
  void choose_place(sleeper& s, bool enters) noexcept VIGIL_REQUIRES(lock_);
  void forget_late_alarm(nanos now) noexcept VIGIL_REQUIRES(lock_);
  watch* leave_place(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  void wait(sleeper& s, nanos until) noexcept;
  void interrupt(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  void remove(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  void publish() noexcept VIGIL_REQUIRES(lock_);
  void rouse(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  sleeper* latest() const noexcept VIGIL_REQUIRES(lock_);

  spinlock lock_{lock_rank::idle};
  watch* watch_ VIGIL_GUARDED_BY(lock_);
  sleeper_list sleepers_ VIGIL_GUARDED_BY(lock_);
  sleeper* watcher_ VIGIL_GUARDED_BY(lock_) = nullptr;  // until it has left the watch
  sleeper* deputy_ VIGIL_GUARDED_BY(lock_) = nullptr;   // one of sleepers_, with an alarm
  nanos rings_at_ VIGIL_GUARDED_BY(lock_) = never;      // never: no deputy_
  watch_absences absences_ VIGIL_GUARDED_BY(lock_);
  std::uint64_t wake_count_ VIGIL_GUARDED_BY(lock_) = 1;  // how often a worker did
  sleeper* napper_ VIGIL_GUARDED_BY(lock_) = nullptr;
  alignas(cache_line) atomic<nanos> earliest_{nobody_sleeps};
  atomic<unsigned> asleep_{0};
  atomic<unsigned> looking_{0};
  atomic<nanos> nap_until_{nobody_sleeps};  // nobody_sleeps: no napper_
  atomic<attention> attended_{attention::none};
  own_counter wake_calls_;  // written under the lock
};

}  // namespace VIGIL_DETAIL
