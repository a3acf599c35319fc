// clock_callback: the deadline of an after_func_at, on wall or boot time.
//
// The callback belongs to an ordinary timer of the runtime, which is filed at the
// deadline's image; so it holds the program, is stopped and is waited for like any other.
// Its function looks at the deadline first, and files the timer anew if it is too early.
//
// The danger. While such a look is under way the ordinary timer is not pending, but the
// user's callback has not begun: a stop() must prevent it, and say so.
//
// The rule. `when_` is the claim: under the lock, the look sets it to `never` before it
// calls the user's function, and a stop sets it to `never` before that.
//
// CB1 While when_ is not `never`, the ordinary timer is pending or its function looks; or
//     it was dropped at the end of its run, and this timer with it.
// CB2 While when_ is not `never`, this is a follower of the hub, which counts it.
// CB3 Under the lock the record is alive while record_ names it: the function's captures
//     hold this, and tell it under the lock when they go. With handles left that is the
//     end of the runtime (TS2).
//
// The lock has a low rank, since a timer that holds the program is counted under others.
#pragma once

#include "core/base/atomic.hpp"
#include "core/clocks/clock_hub.hpp"
#include "core/timer/timer_record.hpp"

#include <vigil/detail/callable.hpp>
#include <vigil/detail/handle.hpp>

#include <cstddef>
#include <memory>

namespace VIGIL_DETAIL {

class clock_callback final : private clock_follower {
 public:
  // Makes the ordinary timer as well, idle, whose one handle is the caller's. Throws
  // std::bad_alloc. Caller: a fiber.
  static clock_callback& make(const std::shared_ptr<clock_hub>& hub,
                              clock_kind kind,
                              callback f,
                              const site& from,
                              timer_record*& record);

  // --- caller: has a handle of the record
  bool stop() noexcept VIGIL_EXCLUDES(lock_);
  // Throws runtime_gone, std::system_error or std::bad_alloc, with nothing changed.
  bool reset(nanos when) VIGIL_EXCLUDES(lock_);
  nanos deadline() const noexcept VIGIL_EXCLUDES(lock_);  // never: not pending

  void retain() noexcept { references_.fetch_add(1); }

  void release() noexcept {
    if (references_.fetch_sub(1) == 1) delete this;
  }

 private:
  struct function;

  clock_callback(const std::shared_ptr<clock_hub>& hub, clock_kind kind) noexcept
      : hub_(hub), kind_(kind) {}

  ~clock_callback() = default;

  bool keep() noexcept override;
  bool clock_changed() noexcept override VIGIL_EXCLUDES(lock_);

  // The look: true if the user's function is to be called now.
  bool begins() VIGIL_EXCLUDES(lock_);
  // The captures go.
  void ends() noexcept VIGIL_EXCLUDES(lock_);
  bool is_pending() const noexcept VIGIL_REQUIRES(lock_);
  void end_pending() noexcept VIGIL_REQUIRES(lock_);
  bool file() noexcept VIGIL_REQUIRES(lock_);

  const std::shared_ptr<clock_hub> hub_;
  const clock_kind kind_;
  atomic<std::size_t> references_{1};
  mutable spinlock lock_{lock_rank::clock_timer};
  timer_record* record_ VIGIL_GUARDED_BY(lock_) = nullptr;
  nanos when_ VIGIL_GUARDED_BY(lock_) = never;
};

}  // namespace VIGIL_DETAIL
