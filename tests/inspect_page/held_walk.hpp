// A look that is kept in the middle of its walk over the fibers.
#pragma once

#include "core/sched/worker/scheduler.hpp"

#include <atomic>
#include <memory>

#include <unistd.h>

namespace vigil::testing_support {

// Stands for the tasks of a runtime, which a walk comes to in the same pass as to its
// fibers. It keeps the walk until it may go on.
class held_walk : public detail::runtime_part {
 public:
  void stop_all() noexcept override {}

  void write(detail::dump_writer&) noexcept override {}

  bool copy(detail::shown_tasks&) noexcept override {
    thread_.store(::gettid());
    thread_.notify_all();
    may_go_.wait(false);
    return true;
  }

  void hold() noexcept {
    thread_.store(0);
    may_go_.store(false);
  }

  // Waits for the walk, and returns its thread.
  int wait_for_walk() const noexcept {
    thread_.wait(0);
    return thread_.load();
  }

  void let_go() noexcept {
    may_go_.store(true);
    may_go_.notify_all();
  }

 private:
  std::atomic<int> thread_{0};
  std::atomic<bool> may_go_{true};
};

inline held_walk& walk_of_this_runtime() {
  return detail::current_fiber()->sched->parts_above.find_or_make<held_walk>(
      detail::runtime_part::kind::tasks, [] { return std::make_unique<held_walk>(); });
}

}  // namespace vigil::testing_support
