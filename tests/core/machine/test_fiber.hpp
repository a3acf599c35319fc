// A bare fiber for tests of the machine layer: a stack, a switch and a body.
#pragma once

#include "core/machine/stack.hpp"
#include "core/machine/switch.hpp"

#include <functional>
#include <thread>
#include <utility>

namespace vigil::testing_support {

class test_fiber {
 public:
  explicit test_fiber(std::function<void(test_fiber&)> body,
                      std::size_t stack_size = detail::default_stack_size)
      : stack_(detail::allocate_stack(stack_size)), body_(std::move(body)) {
    side_.prepare(stack_, stack_.top, &run, this);
  }

  // Only after the body has ended.
  ~test_fiber() {
    side_.destroy();
    detail::release_stack(stack_);
  }

  test_fiber(const test_fiber&) = delete;
  test_fiber& operator=(const test_fiber&) = delete;

  // Called from the body.
  void leave() { detail::leave(side_); }

  // Called from the body: goes straight to another fiber, for the last time.
  void hand_over(detail::thread_side& thread, test_fiber& next) {
    detail::hand_over(thread, side_, next.side_);
  }

  void end_and_hand_over(detail::thread_side& thread, test_fiber& next) {
    done_ = true;
    detail::hand_over_for_ever(thread, side_, next.side_);
  }

  // Called from a thread.
  void enter(detail::thread_side& thread) { detail::enter(thread, side_); }

  void enter_on_another_thread() {
    std::thread([this] {
      detail::thread_side thread;
      detail::enter(thread, side_);
    }).join();
  }

  bool is_done() const { return done_; }

  const detail::stack& where() const { return stack_; }

 private:
  static void run(void* argument) noexcept {
    auto& self = *static_cast<test_fiber*>(argument);
    self.body_(self);
    self.done_ = true;
    detail::leave_for_ever(self.side_);
  }

  detail::stack stack_;
  detail::fiber_side side_;
  std::function<void(test_fiber&)> body_;
  bool done_ = false;
};

}  // namespace vigil::testing_support
