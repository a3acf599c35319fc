// caller: who calls an operation that may have to wait: the running fiber, or a
// thread that is none, which sleeps on a note of its own.
//
//   if (self.may_not_wait()) { unlock; self.refuse(...); }
//   queue the cases; t = self.open(); how = self.wait(t, ...); unlink them
//   self.throw_if_ended(how)
#pragma once

#include "base/nanos.hpp"
#include "sched/note.hpp"
#include "sched/park.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <optional>

namespace vigil::internal {

// How long an operation may wait, as the user said it. The clock is read only
// when it has to.
class timeout {
 public:
  static timeout none() noexcept { return {kind::none, never}; }

  static timeout in(nanos d) noexcept { return {kind::in, d}; }

  static timeout at(nanos deadline) noexcept { return {kind::at, deadline}; }

  // Nothing is to be waited for.
  bool is_over() const noexcept { return kind_ != kind::none && has_passed(); }

  // On the clock of who calls; never earlier than was asked for. `now` is
  // where the time is left if the clock was read.
  nanos deadline(nanos& now) const noexcept;

  nanos deadline() const noexcept {
    nanos ignored = 0;
    return deadline(ignored);
  }

 private:
  enum class kind : std::uint8_t { none, in, at };

  timeout(kind k, nanos n) noexcept : kind_(k), n_(n) {}

  VIGIL_FOR_IO bool has_passed() const noexcept;

  kind kind_;
  nanos n_;
};

VIGIL_FOR_IO fiber* current_fiber() noexcept;  // worker.hpp

class caller {
 public:
  // `under`: waits end when this node does; the caller keeps it meanwhile.
  explicit caller(stop_node* under = nullptr) noexcept : fiber_(current_fiber()), under_(under) {
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

  // Until the ticket is claimed or the deadline comes: then the outcome is
  // `timeout`. Throws std::bad_alloc if the deadline cannot be armed; the wait
  // is over then. `held` is released in every case.
  VIGIL_FOR_IO outcome wait(ticket t, wait_reason why, timeout limit, spinlock& held)
      VIGIL_RELEASE(held);
  outcome wait(ticket t, wait_reason why, timeout limit);

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
  const kept_stop_node under_;
  bool stoppable_ = false;
  bool for_lock_ = false;
  std::optional<thread_part> thread_;
};

}  // namespace vigil::internal
