// stop_waiters: those who wait in stop_and_wait for the end of a callback's run.
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
  // Until no run is under way, or the time of the limit is over. `call`: what the user
  // has called. Throws as a wait does, wrong_place inside the callback, std::bad_alloc
  // if the limit's time cannot be armed.
  void wait(timer_record& t, const detail::wait_limit& limit, const char* call)
      VIGIL_EXCLUDES(lock_);

  // A run of t has ended; its callback is destroyed if nobody can want it any more
  // (U1). Caller: holds a reference to the record beyond this.
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
