// Many timers with callbacks at a time: more than the heap sweeps, or pops, at once.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/timer.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fuzz {

// Many that never fire: what is left of them in the heap is swept.
inline void timer_burst(input& in, std::size_t n) {
  std::vector<vigil::timer> all;
  for (std::size_t i = 0; i < n; ++i)
    all.push_back(vigil::after_func(nanoseconds(unit * static_cast<nanos>(i % 128)), [] {
      expect(false, "a timer fires that is stopped at once");
    }));
  const bool reset_first = in.flag();
  for (const vigil::timer& t : all) {
    if (reset_first) expect(t.reset(nanoseconds(unit)), "a reset before anything ran");
    expect(t.stop(), "a stop before anything ran");
  }
}

// Many that come due at the same instant, some of them again and some no more.
// `advance` sleeps, and looks at the others afterwards.
template <class Advance>
void timer_crowd(input& in, std::size_t n, bool is_as_armed, Advance advance) {
  const nanos begin = now();
  const nanos length = (nanos{in.byte()} + 1) * unit;
  const std::size_t step = 1 + in.below(4);
  std::vector<std::size_t> expected;
  std::vector<std::size_t> came;
  std::vector<vigil::timer> all;
  for (std::size_t i = 0; i < n; ++i) {
    all.push_back(vigil::after_func(nanoseconds(length), [&came, begin, length, i] {
      expect(now() == begin + length, "one of a crowd comes at another time");
      came.push_back(i);
    }));
  }
  for (std::size_t i = 0; i < n; ++i)
    i % step != 0 ? expect(all[i].stop(), "a stop in a crowd") : expected.push_back(i);
  for (std::size_t i = 0; i < n; i += 2 * step) {
    expect(all[i].reset(nanoseconds(length)), "a reset in a crowd");
    expected.erase(std::find(expected.begin(), expected.end(), i));
    expected.push_back(i);
  }
  advance(length);
  if (!is_as_armed) {
    std::sort(expected.begin(), expected.end());
    std::sort(came.begin(), came.end());
  }
  expect(came == expected, "a crowd fires once each, in the order of arming");
}

}  // namespace fuzz
