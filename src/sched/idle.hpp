// idle: which workers sleep, until when, and who is to be woken.
//
// The danger. A worker looks for work, finds none and goes to sleep; between
// its look and its sleep somebody adds work, or arms an earlier timer, sees
// nobody to wake, and goes away. The work then lies there for ever.
//
// The rule. Both sides publish first and look afterwards, all sequentially
// consistent:
//
//   worker that sleeps                     anybody who adds work, or arms
//   I1 publish: in sleepers_, earliest_,   A1 publish: the queue, or
//      asleep_ + 1, then looking_ - 1         scheduler::next_deadline
//   I2 look at every queue and at          A2 look at looking_, asleep_ and
//      next_deadline once more                earliest_
//   I3 sleep                               A3 wake somebody if need be
//
// In the one total order either I1 comes before A2, and the adder wakes a
// sleeper, or A1 comes before I2, and the worker sees the work itself.
//
// A worker that is *looking* (awake, without a fiber) will do I2 before it
// sleeps, so while one is looking nobody needs to be woken. Who wakes a worker
// counts it as looking before it runs, so a burst of additions wakes one, and
// each worker that stops looking because it found something wakes the next one
// if there is more.
//
// A looking worker may nap (worker::nap): it stays counted, sleeps for 50 to 400
// microseconds, in the watch if that is free, and looks again.
// Meanwhile it is the one who looks, so a fiber that hands over to another wakes
// nobody. Whatever should not wait that long rouses it: a second piece of work, a
// deadline before its nap ends. It publishes, looks for those once more, and
// sleeps, as in I1 to I3.
//
// A worker that pinned fibers live on (`kept`) leaves other work to idle workers
// (docs/decisions/0014). It lies down beside work that it sees, and is then an adder
// of it: the work is published, the worker no longer counts as looking, and it looks
// at looking_ and the sleepers (hand_on(): A2, A3). It sleeps if one of the others
// looks, or if it has woken one with fewer ties (`ties`), so never in a circle; else
// it takes the work itself. So of those that look the last one always wakes somebody
// or stays up. For work the sleeper with the fewest ties is woken first.
//
// P7: before a looking worker enters user code it makes sure that, if any
// worker sleeps, one sleeps no longer than to next_deadline (cover()).
//
// At most two workers sleep with a deadline: one to the next one, and a deputy
// to the one after that, so that the deputy takes over without a system call
// when the first is kept by the fiber it woke for. A watch that waits for I/O as
// well is taken over, too (staff_watch()), which costs a call.
#pragma once

#include "base/atomic.hpp"
#include "base/intrusive_list.hpp"
#include "base/nanos.hpp"
#include "base/spinlock.hpp"
#include "sched/wait/note.hpp"
#include "sched/watch.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace vigil::inline VIGIL_ABI::detail {

// Pinned fibers that live on a worker: the more, the later it is woken for work.
enum class ties : std::uint8_t {
  none,
  open,     // all of them wait without a deadline
  bounded,  // one may have to run soon
};

// A worker's place among the sleepers.
struct sleeper {
  list_hook<sleeper> hook;
  nanos until = never;     // guarded by idle_workers' lock; earlier() may move it
  nanos asked = never;     // as it was on lying down; the worker's own
  ties kept = ties::none;  // the worker's own while it is up
  bool in_watch = false;
  watch* which = nullptr;  // if in_watch
  detail::note note;       // where it sleeps if not in the watch
};

class idle_workers {
 public:
  explicit idle_workers(watch& w) noexcept : watch_(&w) {}

  // --- by the worker itself, on its own stack
  void start_looking() noexcept { looking_.fetch_add(1); }

  // Stops looking without going to sleep. True if it was the last one awake that
  // looked: the caller then wakes another if there is more to do.
  bool stop_looking() noexcept { return looking_.fetch_sub(1) == (somebody_naps() ? 2u : 1u); }

  // I1. `next` and `second` are the two earliest deadlines. Afterwards the
  // caller looks (I2), then calls sleep() or stay_awake().
  void lie_down(sleeper& s, nanos next, nanos second) noexcept VIGIL_EXCLUDES(lock_);

  // I3. Until the deadline that was published, or `not_before` if that is later,
  // or somebody wakes it. Looking again when it returns.
  void sleep(sleeper& s, nanos not_before = 0) noexcept VIGIL_EXCLUDES(lock_);

  // The last look of a kept one found what others may take: true if somebody else
  // will, who looks or has been woken for it.
  bool hand_on(const sleeper& self) noexcept VIGIL_EXCLUDES(lock_);

  // The last look found something. Looking again when it returns.
  void stay_awake(sleeper& s) noexcept VIGIL_EXCLUDES(lock_);

  // Caller: looking, and stays so. False if another one naps: no nap then.
  // Afterwards the caller looks for what may not wait, then calls nap() or not,
  // and get_up().
  bool settle_to_nap(sleeper& s, nanos until) noexcept VIGIL_EXCLUDES(lock_);

  void nap(sleeper& s, nanos until) noexcept { wait(s, until); }

  void get_up(sleeper& s) noexcept VIGIL_EXCLUDES(lock_);

  // --- by anybody
  // A2, A3 for one piece of work: wakes one sleeper unless somebody looks.
  // `may_wait`: for as long as a nap.
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

  // A2, A3 for a deadline: makes sure that a sleeper, if there is one, sleeps
  // no longer than to `deadline`, unless somebody looks.
  void cover(nanos deadline) noexcept {
    if (deadline < nap_until_.load()) {
      rouse_napper();
    } else if (deadline < earliest_.load() && looking_.load() == 0) {
      cover_slowly(deadline);
    }
  }

  // Before a worker that was in the watch enters user code, or when I/O comes to be
  // awaited: sees to it that another one goes there, if one sleeps and none looks.
  void staff_watch() noexcept VIGIL_EXCLUDES(lock_);

  // From now on they wait in this one; who is in the other comes out. Both live
  // as long as this does.
  void change_watch(watch& w) noexcept VIGIL_EXCLUDES(lock_);

  // Without regard to those who look.
  void wake(sleeper& s) noexcept VIGIL_EXCLUDES(lock_);  // this one, if it sleeps
  void wake_all() noexcept VIGIL_EXCLUDES(lock_);

  // If all `workers` sleep, none of them to a deadline that has come: a number
  // other than 0. While it stays the same nobody has got up, so between two
  // calls with one answer only the caller and threads from outside can have
  // changed anything.
  std::uint64_t all_asleep(std::size_t workers, nanos now) noexcept VIGIL_EXCLUDES(lock_);
  std::uint64_t times_got_up() noexcept VIGIL_EXCLUDES(lock_);

  // The earliest time to which a worker sleeps; nobody_sleeps if none does.
  static constexpr nanos nobody_sleeps = std::numeric_limits<nanos>::min();

  nanos earliest() const noexcept { return earliest_.load(); }

  unsigned asleep() const noexcept { return asleep_.load(); }

  // Besides the caller, which is looking or not.
  bool others_rest(bool is_looking) const noexcept {
    return asleep_.load() != 0 || looking_.load() > (is_looking ? 1u : 0u);
  }

  unsigned looking() const noexcept { return looking_.load(); }

  // The system calls that waking took: a statistic.
  unsigned long wake_calls() const noexcept { return wake_calls_.get(); }

 private:
  using sleeper_list = list<sleeper, &sleeper::hook>;

  void wake_one_slowly() noexcept VIGIL_EXCLUDES(lock_);
  void cover_slowly(nanos deadline) noexcept VIGIL_EXCLUDES(lock_);
  void rouse_napper() noexcept VIGIL_EXCLUDES(lock_);
  void end_nap() noexcept VIGIL_REQUIRES(lock_);
  void choose_place(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  watch* leave_place(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  void wait(sleeper& s, nanos until) noexcept;
  void interrupt(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  void remove(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  void publish_earliest() noexcept VIGIL_REQUIRES(lock_);
  void rouse(sleeper& s) noexcept VIGIL_REQUIRES(lock_);
  sleeper* latest() const noexcept VIGIL_REQUIRES(lock_);
  sleeper* for_work() const noexcept VIGIL_REQUIRES(lock_);

  spinlock lock_{lock_rank::idle};
  watch* watch_ VIGIL_GUARDED_BY(lock_);
  sleeper_list sleepers_ VIGIL_GUARDED_BY(lock_);
  bool watch_taken_ VIGIL_GUARDED_BY(lock_) = false;
  std::uint64_t got_up_ VIGIL_GUARDED_BY(lock_) = 1;  // how often somebody did
  sleeper* napper_ VIGIL_GUARDED_BY(lock_) = nullptr;
  alignas(cache_line) atomic<nanos> earliest_{nobody_sleeps};
  atomic<unsigned> asleep_{0};
  atomic<unsigned> looking_{0};
  atomic<nanos> nap_until_{nobody_sleeps};  // nobody_sleeps: no napper_
  own_counter wake_calls_;                  // written under the lock
};

}  // namespace vigil::inline VIGIL_ABI::detail
