// A value whose copy throws, and whose move does not.
#pragma once

#include <stdexcept>

namespace vigil::testing_support {

struct copy_throws {
  explicit copy_throws(int v) : value(v) {}

  copy_throws(const copy_throws&) { throw std::runtime_error("no copy today"); }

  copy_throws(copy_throws&&) noexcept = default;
  int value = 0;
};

}  // namespace vigil::testing_support
