// The values that random programs send.
#pragma once

#include "core/chan/history.hpp"

#include <utility>

namespace vigil::testing_support {

// Values of two kinds: bytes that are copied, and an object that is moved and counted.
// Both tell whether they are still in the sender's hand.
struct plain_value {
  plain_value() = default;

  explicit plain_value(value_id v) : id(v) {}

  bool is_in_hand(value_id sent) const { return id == sent; }

  static bool is_moved_out(const plain_value&) { return true; }  // the bytes stay

  value_id id = 0;
};

struct moved_value {
  moved_value() = default;

  explicit moved_value(value_id v) : id(v) { ++alive; }

  moved_value(moved_value&& other) noexcept : id(std::exchange(other.id, 0)) {}

  moved_value& operator=(moved_value&& other) noexcept {
    std::swap(id, other.id);
    return *this;
  }

  ~moved_value() {
    if (id != 0) --alive;
  }

  bool is_in_hand(value_id sent) const { return id == sent; }

  static bool is_moved_out(const moved_value& v) { return v.id == 0; }

  value_id id = 0;
  static inline int alive = 0;  // all on one thread
};

}  // namespace vigil::testing_support
