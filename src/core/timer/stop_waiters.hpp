// stop_waiters: the callers that wait in stop_and_wait for a callback's run to end.
//
// The danger. A run that is waited for may arm its own timer. It must not be pending,
// and no run may be under way, once the wait is over: the caller frees what the
// callback uses.
//
// The rule. A caller that has to wait halts the timer: it sets a bit in `uses`, which
// also counts the runs, and only then stops it. While the bit is set nothing is armed.
//
// SW1 The bit changes under the lock. It is set only while a run is under way, and the
//     end of the last run clears it: the change that ends a run returns the bit.
// SW2 An arming looks at must_ask, exchanges `when`, and looks once more; the halt sets
//     must_ask, then exchanges `when`. So an arming that the halt's own stop misses sees
//     it, and is taken back. A run that has claimed it meanwhile counts as begun before
//     the halt: it is waited for, and arms nothing.
// SW3 When the last caller has given up and a run is still under way, others who arm the
//     timer lift the halt, and number the lift. Runs that begin from then on take the
//     number; one without it was given up, and arms nothing.
#pragma once

#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/timer/records.hpp"

#include <vigil/detail/wait_limit.hpp>

namespace VIGIL_DETAIL {

class stop_waiters {
 public:
  // Halts t, if a run is under way, and waits for its end or for the limit's. Returns
  // whether an arming was prevented. Throws: timer_service::stop_and_wait().
  bool wait(timer_record& t, const wait_limit& limit, const char* call) VIGIL_EXCLUDES(lock_);

  // Ends a run of t, and destroys its callback if nothing can need it any more (TR1).
  // Caller: holds a reference to the record beyond this call.
  void end_run(timer_record& t) noexcept VIGIL_EXCLUDES(lock_);

  // Notes the last lift of t. Caller: has begun to be counted after it.
  void note_run(fiber& self, const timer_record& t) noexcept VIGIL_EXCLUDES(lock_);

  // Whether the caller may arm t: others may, unless t is waited for.
  bool lets_arm(timer_record& t) noexcept VIGIL_EXCLUDES(lock_);

  // Takes an arming back if t has been halted since it was let. False if so.
  bool lets_stand(timer_record& t) noexcept VIGIL_EXCLUDES(lock_);

 private:
  struct entry : queued_waiter {
    timer_record* timer = nullptr;
    bool prevented = false;  // guarded by the lock until the wait has ended
  };

  using entry_list = list<entry, &entry::hook>;

  void end_halt(timer_record& t) noexcept VIGIL_EXCLUDES(lock_);
  void take_back(timer_record& t) noexcept VIGIL_REQUIRES(lock_);
  void note_prevented(const timer_record& t) noexcept VIGIL_REQUIRES(lock_);
  bool is_awaited(const timer_record& t) const noexcept VIGIL_REQUIRES(lock_);

  spinlock lock_{lock_rank::timer_stops};
  entry_list entries_ VIGIL_GUARDED_BY(lock_);
  std::uint64_t lifts_ VIGIL_GUARDED_BY(lock_) = 0;  // no number comes twice
};

}  // namespace VIGIL_DETAIL
