// wake_descriptor: a descriptor that a thread makes readable to wake the owner of a loop,
// who may be waiting for it in any way there is.
//
//   owner    clear(), then it publishes that it sleeps, looks once more, and waits only
//            if may_wait()
//   waker    set(): says so, then writes
//
// WD1 may_wait() reads what was written, and looks afterwards. A waker that it does not
//     see writes later, so the descriptor stays readable. A waker that it does see may
//     write late: that wakes the owner once in vain, since the next may_wait() reads it.
// WD2 Until the next clear() a wake-up that was seen stands for all: nobody writes. So an
//     owner that goes away before that, with work left, writes itself: leave_work().
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Event has write() and take(), which takes all that was written.
template <class Event>
class wake_descriptor {
 public:
  // The owner: forgets earlier wakes.
  void clear() noexcept { is_set_.store(false); }

  // The owner.
  bool may_wait() noexcept {
    event_.take();
    return !is_set_.load();
  }

  // Any thread, and signal handlers. Returns whether it has written.
  bool set() noexcept {
    // seq_cst: WD1.
    if (is_set_.exchange(true)) return false;
    event_.write();
    return true;
  }

  // The owner: it goes away and is to be called again.
  void leave_work() noexcept {
    is_set_.store(true);
    event_.write();
  }

  // The owner: there is nothing to be called for.
  void reset() noexcept {
    clear();
    event_.take();
  }

  bool is_set() const noexcept { return is_set_.load(); }

  const Event& event() const noexcept { return event_; }

 private:
  Event event_;
  atomic<bool> is_set_{false};
};

}  // namespace VIGIL_DETAIL
