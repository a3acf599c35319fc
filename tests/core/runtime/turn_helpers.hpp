// Calls that give their worker away, counted.
#pragma once

#include "core/runtime/runtime_test.hpp"

namespace vigil::testing_support {

inline constexpr int many_calls = 5000;  // more than two budgets

// Makes the call until another fiber, which is ready all the time, has had a turn.
// Returns the number of calls; `many_calls` if it had none.
template <class F>
int calls_before_others(F call) {
  bool had_turn = false;
  auto other = spawn([&] { had_turn = true; });
  int calls = 0;
  while (!had_turn && calls < many_calls) {
    call();
    ++calls;
  }
  other.join();
  return calls;
}

template <class F>
void check_gives_way(const char* what, F call) {
  const int calls = calls_before_others(call);
  CHECK_MESSAGE(calls < many_calls, what, " never gives its worker away");
  CHECK_MESSAGE(calls > 80, what, " gives its worker away too soon");
}

}  // namespace vigil::testing_support
