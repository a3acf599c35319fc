// Helpers that the tests of timer_heap share.
#pragma once

#include "core/timer/timer_heap.hpp"

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

namespace VIGIL_DETAIL {

// The heap never follows the pointer, so a number serves as a timer.
inline runtime_timer* as_timer(std::uintptr_t id) {
  return reinterpret_cast<runtime_timer*>(id * 16);
}

inline heap_entry entry(nanos key, std::uint32_t tie = 0, std::uintptr_t id = 0) {
  return {.key = key, .tie = tie, .slack_us = 0, .timer = as_timer(id)};
}

inline void push(timer_heap& heap, heap_entry e) {
  REQUIRE(heap.reserve(heap.size() + 1));
  heap.push(e);
}

inline std::vector<nanos> drain_keys(timer_heap& heap) {
  std::vector<nanos> keys;
  while (!heap.empty())
    keys.push_back(heap.pop().key);
  return keys;
}

}  // namespace VIGIL_DETAIL
