// step_listener: the thread of one runtime that hears steps of the wall clock and resumes
// of the machine, while a timer on one of these clocks is pending.
//
// It is a thread because the kernel tells of them by a descriptor only, and the watch of
// an idle worker, a futex, cannot wait for one. The thread blocks in read() on a timerfd
// on CLOCK_REALTIME that is set far ahead with TFD_TIMER_CANCEL_ON_SET: the read fails
// with ECANCELED when the distance between wall time and monotonic time has changed. A
// step changes it, and so does a suspend, during which monotonic time stands still.
//
// The danger. A step that falls between the reading of a clock and the filing of a
// deadline computed from it would be heard by nobody.
//
// The rule. From the moment at which the descriptor is set the kernel remembers a step,
// even before the thread reads.
//
// SL1 begin() returns with the descriptor set; a timer reads its clock afterwards.
// SL2 After the last end() the descriptor stays set for `linger`, then the thread closes
//     it and ends. So a program that waits again soon starts no thread for it.
// SL3 After a step the thread first sets the descriptor again, and then tells.
#pragma once

#include "core/base/nanos.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <mutex>
#include <thread>

namespace VIGIL_DETAIL {

class step_listener {
 public:
  // Returns false if it could not tell all, and has to be called again.
  using tell_function = bool (*)(void* argument) noexcept;

  static constexpr nanos linger = 1'000'000'000;

  step_listener(tell_function tell, void* argument) noexcept : tell_(tell), argument_(argument) {}

  ~step_listener();
  step_listener(const step_listener&) = delete;
  step_listener& operator=(const step_listener&) = delete;

  // Counts a pending timer. Throws runtime_gone after is_over(), and std::system_error if
  // there is no descriptor or no thread; nothing is counted then.
  void begin();
  void end() noexcept;

  // Ends the thread, for good. Caller: not the thread.
  void is_over() noexcept;

  // Has the thread tell of a step that there was none of. For tests.
  void pretend_step() noexcept;

  // The number of the thread; 0 if there is none.
  int thread_id() const noexcept;

 private:
  void start();
  void body() noexcept;
  void set(nanos wall_time) noexcept;

  const tell_function tell_;
  void* const argument_;
  mutable std::mutex lock_;  // guards the rest
  std::thread thread_;       // may have ended
  int descriptor_ = -1;      // -1: no thread is there, or it is about to end
  int thread_id_ = 0;
  std::size_t pending_ = 0;
  bool over_ = false;
};

}  // namespace VIGIL_DETAIL
