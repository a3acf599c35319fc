// The program on the first page of the README: a fiber with a result, work
// that repeats, and a timer that is stopped before its time.
//
// Run:    build/release/examples/readme
// Prints: two ticks, the answer, and that it came in time.

//! [program]
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  return vigil::run([] {
    auto answer = vigil::spawn([] {
      vigil::sleep_for(500ms);  // parks this fiber; its thread goes on with others
      return 42;
    });

    auto beat = vigil::every(200ms, [] { std::puts("tick"); });
    auto too_late = vigil::after_func(2s, [] { std::puts("too late"); });

    std::printf("the answer is %d\n", answer.join());
    beat.stop();
    if (too_late.stop()) std::puts("in time");
  });
}

//! [program]
