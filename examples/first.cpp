// The smallest program of the guide: a fiber that another one waits for.
//
// Run:    build/release/examples/first
// Prints: two lines, a second apart.

//! [program]
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  return vigil::run([] {
    auto answer = vigil::spawn([] {
      vigil::sleep_for(1s);
      return 42;
    });
    std::puts("thinking");
    std::printf("it is %d\n", answer.join());
  });
}

//! [program]
