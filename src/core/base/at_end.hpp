// at_end: calls a function at the end of a scope, however it is left.
#pragma once

#include <vigil/detail/config.hpp>

#include <utility>

namespace VIGIL_DETAIL {

template <class F>
class [[nodiscard]] at_end {
 public:
  explicit at_end(F f) noexcept : f_(std::move(f)) {}

  ~at_end() { f_(); }

  at_end(const at_end&) = delete;
  at_end& operator=(const at_end&) = delete;

 private:
  F f_;
};

}  // namespace VIGIL_DETAIL
