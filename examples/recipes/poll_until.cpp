// Asks again and again whether something is done, for 30 seconds at most.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

template <class F>
bool poll(vigil::clock::duration every, vigil::clock::duration limit, F is_done) {
  const vigil::ticker beat(0s, every);  // the first time at once
  const auto until = vigil::deadline_in(limit);
  // A tick that is there is received even late, so the clock ends the loop.
  while (vigil::clock::now() < until && beat.channel().recv_until(until)) {
    if (is_done()) return true;
  }
  return false;
}

int main() {
  return vigil::testing::run_virtual([] {
    for (const auto takes : {12s, 60s}) {
      int asked = 0;
      const auto ready = vigil::clock::now() + takes;
      const bool done = poll(4s, 30s, [&] { return ++asked, vigil::clock::now() >= ready; });
      std::printf("asked %d times: %s\n", asked, done ? "done" : "given up");
    }
  });
}

//! [recipe]
