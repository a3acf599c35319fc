// end_listener: the main fiber at the run's end, as seen by the parts that keep a count
// which it may wait for: fibers, outside work, functions on side pools.
//
// A thread that counts down changes the count first, and reads wanted_
// afterwards; the main fiber writes wanted_ first, and looks at the counts
// afterwards. All sequentially consistent, so one of them sees the other.
#pragma once

#include "base/atomic.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

class end_listener {
 public:
  end_listener() = default;
  end_listener(const end_listener&) = delete;
  end_listener& operator=(const end_listener&) = delete;

  // Any thread. Caller: keeps the scheduler alive meanwhile.
  void something_ended() noexcept {
    if (wanted_.load()) look_again();
  }

  // Called by the main fiber.
  void listen(bool wanted) noexcept { wanted_.store(wanted); }

 protected:
  ~end_listener() = default;

 private:
  // Readies the main fiber if what it waits for has come.
  virtual void look_again() noexcept = 0;

  atomic<bool> wanted_{false};
};

}  // namespace VIGIL_DETAIL
