// A fiber's name as messages and dumps write it: in one line, and without control
// characters. A backslash is doubled, so the written form is unambiguous.
#pragma once

#include "core/sched/fiber/fiber.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

// Async-signal-safe. In a list of arguments it lives as long as the call.
class written_name {
 public:
  explicit written_name(const char* name) noexcept;

  const char* text() const noexcept { return text_; }

 private:
  void escape(char c) noexcept;

  std::size_t size_ = 0;
  char text_[4 * fiber_identity::name_room];
};

}  // namespace VIGIL_DETAIL
