// end_listener: the main fiber at the run's end, as seen by the parts that keep a count
// which it may wait for: fibers, outside work, functions on side pools.
//
// A thread that counts down changes the count first, and reads wanted_
// afterwards; the main fiber writes wanted_ first, and looks at the counts
// afterwards. All sequentially consistent, so one of them sees the other.
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

class end_listener {
 public:
  // Readies the main fiber if what it waits for has come.
  using look = void (*)(void* main) noexcept;

  // Called once, before anything ends.
  void attach(look again, void* main) noexcept {
    look_again_ = again;
    main_ = main;
  }

  // Any thread. Caller: keeps the scheduler alive meanwhile.
  void something_ended() noexcept {
    if (wanted_.load()) look_again_(main_);
  }

  // Caller: the main fiber.
  void listen(bool wanted) noexcept { wanted_.store(wanted); }

 private:
  atomic<bool> wanted_{false};
  look look_again_ = nullptr;
  void* main_ = nullptr;
};

}  // namespace VIGIL_DETAIL
