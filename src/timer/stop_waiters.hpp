// stop_waiters: the callers that wait in stop_and_wait for a callback's run to end.
//
// A caller that waits sets the record's `awaited` and then looks for runs; a runner that
// ends the last run changes `uses` and then looks at `awaited`. All of this is
// sequentially consistent, so one of the two sees the other.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/spinlock.hpp"
#include "sched/wait/waiter.hpp"
#include "timer/records.hpp"

#include <vigil/detail/wait_limit.hpp>

namespace vigil::inline VIGIL_ABI::detail {

class stop_waiters {
 public:
  // Waits until no run is under way, or until the limit's time is over. `call` is the
  // name of what the user has called. Throws as a wait does, wrong_place inside the
  // callback, std::bad_alloc if the limit's time cannot be armed.
  void wait(timer_record& t, const wait_limit& limit, const char* call) VIGIL_EXCLUDES(lock_);

  // Ends a run of t, and destroys its callback if nothing can need it any more (TR1).
  // Caller: holds a reference to the record beyond this call.
  void end_run(timer_record& t) noexcept VIGIL_EXCLUDES(lock_);

 private:
  struct entry : queued_waiter {
    timer_record* timer = nullptr;
  };

  using entry_list = list<entry, &entry::hook>;

  void tell(timer_record& t) noexcept VIGIL_EXCLUDES(lock_);

  spinlock lock_{lock_rank::fiber_join};
  entry_list entries_ VIGIL_GUARDED_BY(lock_);
};

}  // namespace vigil::inline VIGIL_ABI::detail
