// A leak of fibers: the one that asks gives up after a while, and then nobody takes the
// answer. On virtual time, so that it is the same each time.
#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

//! [lookup]
[[gnu::noinline]] void look_up(vigil::channel<int> answer) {
  vigil::sleep_for(20ms);  // stands for a slow server
  answer.send(42);
}

[[gnu::noinline]] bool ask() {
  auto answer = vigil::make_channel<int>();
  vigil::go(look_up, answer);
  return bool(answer.recv_for(10ms));
}

//! [lookup]

int main() {
  vigil::inspect::install();
  vigil::testing::run_virtual([] {
    for (int i = 1; i <= 1000; ++i) {
      ask();
      vigil::sleep_for(1s);
      if (i % 500 == 0) {
        std::printf("%d requests, %llu fibers alive\n",
                    i,
                    static_cast<unsigned long long>(vigil::stats().fibers_alive));
      }
    }
    vigil::inspect::dump(stderr);
  });
}
