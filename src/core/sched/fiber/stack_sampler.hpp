// stack_sampler: measures the stacks of a few fibers, once vigil-inspect has installed
// it. The library itself needs none.
//
// The fiber's number decides whether it is drawn: no count is kept, and on virtual time
// the same fibers are drawn under each seed that numbers them alike.
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

class fiber_core;

class stack_sampler {
 public:
  // Called with a fiber that was drawn, while nothing lies on its stack but its control
  // block. Returns whether it is to be measured: then end() is called.
  virtual bool begin(const fiber_core& f) noexcept = 0;
  // Called on the fiber's own stack, after the last of the user's code there, and before
  // a joiner hears of the end.
  virtual void end(const fiber_core& f) noexcept = 0;

 protected:
  stack_sampler() = default;
  stack_sampler(const stack_sampler&) = delete;
  stack_sampler& operator=(const stack_sampler&) = delete;
  ~stack_sampler() = default;
};

// nullptr: none is installed, or no more. A sampler lives for ever.
VIGIL_FOR_IO extern atomic<stack_sampler*> installed_sampler;

// A fiber's number, mixed: those of a pattern in which fibers are started are spread
// evenly over all values.
constexpr std::uint32_t mixed(std::uint64_t id) noexcept {
  return static_cast<std::uint32_t>(id * 0x9e37'79b9);
}

// Whether a fiber with this number is drawn: one in 64 is.
constexpr bool is_drawn(std::uint32_t mixed_id) noexcept {
  return mixed_id < std::uint32_t{1} << 26;
}

}  // namespace VIGIL_DETAIL
