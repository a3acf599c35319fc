// caller: the side that calls an operation which may have to wait: the running fiber, or
// a plain thread, which sleeps on a note of its own. Every wait except those of the
// shutdown's own fibers goes through one.
//
//   if (self.may_not_wait()) { unlock; self.refuse(...); }
//   t = self.open(); become findable; unlock; result = self.wait(t, why); unlink
//   self.throw_if_ended(result)
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/wait/case_table.hpp"
#include "core/sched/wait/note.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstdint>
#include <optional>

namespace VIGIL_DETAIL {

VIGIL_FOR_IO worker* current_worker() noexcept;  // worker.hpp
VIGIL_FOR_IO fiber* current_fiber() noexcept;    // worker.hpp

class caller {
 public:
  // Which event ends the waits, beside the limit and the event that they are for. None
  // does while the fiber is shielded or unwinds.
  enum mode : std::uint8_t {
    stoppable,    // a stop of the fiber, which refuses the wait as well
    for_lock,     // a fatal deadlock (deadlock_finder::claim_lock_waits), unless the fiber has
                  // to take the lock back
    unstoppable,  // nothing
  };

  // `limit` holds for each of its waits. The caller keeps the limit's node
  // (wait_limit.hpp).
  explicit caller(const wait_limit& limit = no_limit, mode m = stoppable) noexcept
      : caller(limit, m, current_worker()) {}

  explicit caller(mode m) noexcept : caller(no_limit, m) {}

  // True if a wait is forbidden here or now; refuse() then says why. May be called under
  // a lock.
  VIGIL_FOR_IO bool may_not_wait() const noexcept;
  // Throws `stopped` or wrong_place, or ends the program under no_park.
  [[noreturn]] VIGIL_FOR_IO void refuse(const char* call) const;

  const wait_limit& limit() const noexcept { return kept_.limit; }

  bool is_fiber() const noexcept { return fiber_ != nullptr; }

  case_owner as_owner() noexcept { return {own_waiter(), may_not_wait(), stoppable_, for_lock_}; }

  waiter& own_waiter() noexcept {
    return fiber_ != nullptr ? fiber_->own_waiter : thread_->own_waiter;
  }

  ticket open() noexcept { return own_waiter().open(stoppable_, for_lock_); }

  ticket open(open_wait& w) noexcept {
    w.whose = &own_waiter();
    return w.opened = open();
  }

  // Waits until the ticket is claimed or the limit comes: then the outcome is `timeout`,
  // or `cancelled`. Throws std::bad_alloc if the deadline cannot be armed; the wait is
  // over then.
  VIGIL_FOR_IO outcome wait(ticket t, awaited what);

  // The same for the time alone, on a fiber: runtime_stats::fibers_sleeping counts it.
  outcome wait_asleep(ticket t);

  // The same. leave() undoes what made the wait findable. It is called unless the outcome
  // is `value` or `closed`, and if this throws.
  template <class Leave>
  outcome wait(ticket t, awaited what, Leave leave) {
    outcome result = outcome::open;
    try {
      result = wait(t, what);
    } catch (...) {
      leave();
      throw;
    }
    if (result != outcome::value && result != outcome::closed) leave();
    return result;
  }

  // Called instead, if there is nothing to wait for; under no_park, too.
  void throw_if_stopped() const {
    if (must_stop()) throw_if_ended(outcome::stopped);
  }

  // Called after a wait that brought nothing: throws if a stop, a cancel or a deadlock
  // has ended it.
  VIGIL_FOR_IO void throw_if_ended(outcome result) const;

 private:
  struct thread_part {
    thread_part() noexcept : own_waiter(sleep) {}

    note sleep;
    waiter own_waiter;
  };

  VIGIL_FOR_IO caller(const wait_limit& limit, mode m, const worker* on) noexcept;

  VIGIL_FOR_IO bool must_stop() const noexcept;
  outcome sleep(ticket t, wait_reason reason) noexcept;
  outcome sleep_alone(ticket t, nanos deadline) noexcept;
  outcome sleep_without_runtime(ticket t, nanos deadline) noexcept;

  fiber* const fiber_;
  const kept_limit kept_;
  bool stoppable_ = false;
  bool for_lock_ = false;
  std::optional<thread_part> thread_;
};

}  // namespace VIGIL_DETAIL
