// Helpers that the tests of blocking() share.
#pragma once

#include <atomic>
#include <thread>
#include <utility>

namespace vigil::testing_support {

// Records which thread destroys it, once.
struct dies_on {
  explicit dies_on(std::atomic<std::thread::id>& where) : on(&where) {}

  dies_on(dies_on&& other) noexcept : on(std::exchange(other.on, nullptr)) {}

  ~dies_on() {
    if (on != nullptr) *on = std::this_thread::get_id();
  }

  std::atomic<std::thread::id>* on;
};

}  // namespace vigil::testing_support
