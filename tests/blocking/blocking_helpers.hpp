// What the tests of blocking() share.
#pragma once

#include "sched/scheduler.hpp"

#include <atomic>
#include <thread>
#include <utility>

namespace vigil::testing_support {

// Notes which thread destroys it, once.
struct dies_on {
  explicit dies_on(std::atomic<std::thread::id>& where) : on(&where) {}

  dies_on(dies_on&& other) noexcept : on(std::exchange(other.on, nullptr)) {}

  ~dies_on() {
    if (on != nullptr) *on = std::this_thread::get_id();
  }

  std::atomic<std::thread::id>* on;
};

// From outside a fiber: until every worker sleeps, and whoever is to be taken for
// idle is.
inline void wait_until_asleep(detail::scheduler& sched) {
  while (sched.idle().asleep() < sched.workers().size())
    std::this_thread::yield();
}

}  // namespace vigil::testing_support
