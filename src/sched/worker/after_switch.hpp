#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

// The act that is done for a fiber that has left, off its stack.
enum class after_switch : std::uint8_t {
  nothing,
  park,
  yield,
  park_timer_fiber,
  timer_fiber_turn,  // the same, but more is due: other fibers have a few turns first
  end,
};

}  // namespace VIGIL_DETAIL
