// Calls about timers that throw, and change nothing.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/post.hpp>
#include <vigil/runtime.hpp>
#include <vigil/ticker.hpp>
#include <vigil/timer.hpp>

#include <functional>
#include <stdexcept>

namespace fuzz {

inline void timer_mistakes(const vigil::timer& t) {
  using std::invalid_argument;
  const auto nothing = [] { expect(false, "it was never armed"); };
  const std::function<void()> empty;
  const nanoseconds zero(0);
  vigil::runtime& here = vigil::runtime::current();
  expect(throws<invalid_argument>([&] { vigil::every(zero, nothing); }), "a period of 0");
  expect(throws<invalid_argument>([&] { vigil::after_func(zero, empty); }), "an empty function");
  expect(throws<invalid_argument>([&] { here.after_func(zero, empty); }), "an empty function");
  expect(throws<invalid_argument>([&] { vigil::post(empty); }), "an empty function");
  expect(throws<invalid_argument>([&] { vigil::defer(empty); }), "an empty function");
  expect(throws<invalid_argument>([&] { here.post(empty); }), "an empty function");
  const vigil::scoped_timer none{vigil::timer()};
  if (!t) expect(throws<std::logic_error>([&] { t.reset(zero); }), "an empty handle");
}

}  // namespace fuzz
