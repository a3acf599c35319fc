// side_stack: a function on a stack of its own, which a thread enters and leaves like a
// fiber, but which no worker knows. A guest's worker runs on one.
#pragma once

#include "core/machine/switch.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

class worker;

class side_stack {
 public:
  // Throws std::system_error.
  explicit side_stack(std::size_t usable);
  ~side_stack();
  side_stack(const side_stack&) = delete;
  side_stack& operator=(const side_stack&) = delete;

  // The next enter() calls entry(argument), which ends with leave_for_ever().
  void prepare(void (*entry)(void*), void* argument) noexcept;

  // --- the thread outside: runs the function until it leaves
  void enter() noexcept;

  // Called after leave_for_ever().
  void finish() noexcept { side_.destroy(); }

  // --- the function
  // Returns when the stack is entered again, on the same thread.
  void leave() noexcept { detail::leave(side_); }

  [[noreturn]] void leave_for_ever() noexcept { detail::leave_for_ever(side_); }

  bool is_inside() const noexcept { return is_inside_; }

  // Whether the address lies in it.
  bool has(const void* address) const noexcept {
    const auto* const bottom = static_cast<const std::byte*>(mapping_);
    return address >= bottom && address < bottom + size_;
  }

 private:
  void* mapping_;
  std::size_t size_;
  fiber_side side_;
  worker* within_ = nullptr;  // the thread's worker while the function runs
  [[maybe_unused]] unsigned valgrind_id_ = 0;
  bool is_inside_ = false;
};

}  // namespace VIGIL_DETAIL
