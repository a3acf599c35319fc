// caller: who calls an operation that may have to wait: the running fiber, or a
// thread that is none, which sleeps on a note of its own.
//
//   if (self.may_not_wait()) { unlock; self.refuse(...); }
//   queue the cases; t = self.open(); how = self.wait(t, why); unlink them
//   self.throw_if_ended(how)
#pragma once

#include "base/nanos.hpp"
#include "sched/note.hpp"
#include "sched/park.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstdint>
#include <optional>

namespace vigil::internal {

using detail::wait_limit;

// A limit as a deadline, on the clock of who calls; never earlier than was asked for.
nanos deadline_of(const wait_limit& limit) noexcept;

VIGIL_FOR_IO fiber* current_fiber() noexcept;  // worker.hpp

class caller {
 public:
  // `limit`: of each of its waits. It keeps the limit's node meanwhile.
  explicit caller(const wait_limit& limit = detail::no_limit) noexcept
      : fiber_(current_fiber()), kept_(limit) {
    if (fiber_ == nullptr) thread_.emplace();
  }

  // Whether it must not wait here or now; refuse() then says why. Under a lock.
  // `stoppable`: whether a stop of the fiber ends the wait, or refuses it.
  VIGIL_FOR_IO bool may_not_wait(bool stoppable = true) noexcept;
  // It waits for a lock: a deadlocked run that can be unwound in no other way ends
  // the wait (scheduler::end_lock_waits), but not while shielded, nor while
  // unwinding, nor where the lock has to be taken back.
  void waits_for_lock() noexcept;
  // Throws `stopped` or wrong_place, or ends the program under no_park.
  [[noreturn]] void refuse(const char* call);

  waiter& self() noexcept { return fiber_ != nullptr ? fiber_->self : thread_->self; }

  ticket open() noexcept {
    return fiber_ != nullptr ? fiber_->self.open(stoppable_, for_lock_) : open_on_thread();
  }

  // Until the ticket is claimed or the limit comes: then the outcome is
  // `timeout`, or `cancelled`. Throws std::bad_alloc if the deadline cannot be
  // armed; the wait is over then. `held` is released in every case.
  VIGIL_FOR_IO outcome wait(ticket t, wait_reason why, spinlock& held) VIGIL_RELEASE(held);
  outcome wait(ticket t, wait_reason why);

  // After a wait that brought nothing: throws what one that ended by a stop, a
  // cancel or a deadlock throws.
  void throw_if_ended(outcome how);

 private:
  struct thread_part {
    thread_part() noexcept : self(sleep) {}

    note sleep;
    waiter self;
  };

  VIGIL_FOR_IO ticket open_on_thread() noexcept;
  outcome sleep(ticket t, nanos deadline) noexcept;
  outcome sleep_alone(ticket t, nanos deadline) noexcept;

  fiber* const fiber_;
  const detail::kept_limit kept_;
  bool stoppable_ = false;
  bool for_lock_ = false;
  std::optional<thread_part> thread_;
};

}  // namespace vigil::internal
