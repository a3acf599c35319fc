// hello: fibers that sleep and are joined, a timer, repeating work.
//
// Run it:     build/release/examples/hello
// It prints:  the lines of hello.expected, in 0.6 seconds. The fibers start
//             in one order and wake in the order of their deadlines.
#include "example.hpp"

#include <chrono>

using namespace std::chrono_literals;

int main() {
  return example_main([] {
    //! [hello]
    vigil::go([] {
      vigil::sleep_for(250ms);
      std::puts("a fiber slept for 250 ms");
    });

    auto answer = vigil::spawn([] {
      vigil::sleep_for(350ms);
      return 42;
    });

    auto beat = vigil::every(100ms, [] { std::puts("beat"); });
    auto too_late = vigil::after_func(450ms, [] { std::puts("too late"); });

    std::printf("the answer is %d\n", answer.join());  // parks this fiber, not a thread
    if (too_late.stop()) std::puts("in time: the timer is stopped");

    vigil::sleep_for(200ms);
    beat.stop();
    //! [hello]
  });
}
