// The loop of a host, by poll(2).
#pragma once

#include <vigil/guest.hpp>

#include <doctest/doctest.h>

#include <poll.h>

namespace vigil::testing_support {

// Whether the descriptor is readable, after so long at most; -1: for ever.
inline bool is_readable(const guest_runtime& g, int milliseconds = 0) {
  pollfd one{g.descriptor(), POLLIN, 0};
  return ::poll(&one, 1, milliseconds) == 1;
}

// Polls until there is nothing to do for now. One poll may leave work: it is over after a
// millisecond, even if the machine had no time for it. Returns what the last one has.
inline bool poll_all(guest_runtime& g) {
  bool goes_on = g.poll();
  while (goes_on && is_readable(g))
    goes_on = g.poll();
  return goes_on;
}

// Polls whenever the descriptor is readable, until the run has ended. Returns how often.
inline int serve(guest_runtime& g) {
  constexpr int lost = 600'000;  // milliseconds: nobody will wake it any more
  int polls = 0;
  do {
    REQUIRE(is_readable(g, lost));
    ++polls;
  } while (g.poll());
  return polls;
}

}  // namespace vigil::testing_support
