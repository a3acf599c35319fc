// Helpers that the tests of post and defer share.
#pragma once

#include "core/time/time_test.hpp"

namespace vigil::testing_support {

inline options all_done() {
  options o;
  o.exit = exit_when::all_done;
  return o;
}

// Beside an endless chain, a timer, a fiber and a post each get their turn.
inline void check_others_have_their_turn() {
  auto ran = make_channel<int>(3);
  after_func(1ms, [ran] { ran.send(1); });
  go([ran] { ran.send(2); });
  post([ran] { ran.send(3); });
  int sum = 0;
  for (int i = 0; i < 3; ++i)
    sum += *ran.recv();
  CHECK(sum == 6);
}

}  // namespace vigil::testing_support
