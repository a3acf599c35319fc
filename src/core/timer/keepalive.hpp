// keepalive: how many timers hold the program (exit_when::all_done).
//
// A timer holds the program while it is pending and referenced. In such a run a thread
// that changes either does so under timer_owner::outside, and counts the result in one
// word before it releases the lock. So when a hold passes from one timer to another, the
// new hold is counted before the old one is given up.
//
// A thread that may give up a hold counts as outside work from before the change until it
// has told the main fiber and had the workers look again (outside_work::enter, leave).
// Without that, a worker that looks in between would find nothing pending and the
// program held, and report a deadlock.
#pragma once

#include "core/base/atomic.hpp"
#include "core/timer/records.hpp"
#include "core/timer/timer_owner.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

class keepalive {
 public:
  explicit keepalive(timer_owner& owner) noexcept : owner_(owner) {}

  // Starts anew for a runtime.
  void begin(bool counts) noexcept {
    held_.store(0);
    counts_.store(counts);
  }

  // ordering: set before the runtime's first timer; a handle of an earlier runtime is
  // told apart by its generation.
  bool counts() const noexcept { return counts_.load(order::relaxed); }

  bool holds_program() const noexcept { return held_.load() != 0; }

  // A scope in which `when` or `referenced` of a timer with a callback may change. In a
  // run that counts, or with `from_outside`, it holds timer_owner::outside.
  class change {
   public:
    change(keepalive& k, timer_record& t, bool from_outside = false) noexcept
        : counts_(k.counts()) {
      if (counts_ || from_outside) [[unlikely]]
        begin(k, t);
    }

    ~change() {
      if (of_ != nullptr) [[unlikely]]
        end();
    }

    change(const change&) = delete;
    change& operator=(const change&) = delete;

   private:
    void begin(keepalive& k, timer_record& t) noexcept;
    void end() noexcept;

    const bool counts_;
    keepalive* of_ = nullptr;  // set if the lock is held; so are the next two
    timer_record* timer_;
    scheduler* entered_;
  };

 private:
  timer_owner& owner_;
  atomic<bool> counts_{false};   // exit_when::all_done
  atomic<std::size_t> held_{0};  // timers that hold the program; changed under the lock
};

}  // namespace VIGIL_DETAIL
