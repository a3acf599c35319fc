// A gate at which functions on a side pool wait, on their threads.
#pragma once

#include <vigil/time.hpp>

#include <atomic>
#include <chrono>

namespace vigil::testing_support {

// Keeps a function on its thread until it is opened.
class gate {
 public:
  void open() {
    open_.store(true);
    open_.notify_all();
  }

  void wait() {
    entered_.store(true);
    open_.wait(false);
  }

  bool entered() const { return entered_.load(); }

  // Called from a fiber. It polls, so it lasts however long the function's thread takes
  // to start.
  void wait_until_entered() const {
    while (!entered())
      vigil::sleep_for(std::chrono::microseconds(100));
  }

 private:
  std::atomic<bool> open_{false};
  std::atomic<bool> entered_{false};
};

}  // namespace vigil::testing_support
