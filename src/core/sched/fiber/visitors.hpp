// visitors: threads that are not workers of a runtime, inside a call of its scheduler.
//
// The danger. Such a thread may end the run: it hands over the last fiber, or takes
// away the last thing for which the main fiber waits. Then run() returns, and the
// runtime may be destroyed, while the thread is still in the call.
//
// The rule. The thread is counted from before the change that may end the run until it
// no longer touches the scheduler: leaving is its last touch. The runtime's destructor
// waits until no visitor is inside (scheduler::let_go).
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>

#include <thread>

namespace VIGIL_DETAIL {

class visitors {
 public:
  void enter() noexcept { inside_.fetch_add(1); }

  void leave() noexcept { inside_.fetch_sub(1); }

  void wait_until_gone() const noexcept {
    while (inside_.load() != 0)
      std::this_thread::yield();
  }

 private:
  // On a line of its own: the words around it are read by every worker.
  alignas(cache_line) atomic<unsigned> inside_{0};
};

// One visit, to the end of the block.
class visit {
 public:
  explicit visit(visitors& among) noexcept : visitors_(among) { visitors_.enter(); }

  ~visit() { visitors_.leave(); }

  visit(const visit&) = delete;
  visit& operator=(const visit&) = delete;

 private:
  visitors& visitors_;
};

}  // namespace VIGIL_DETAIL
