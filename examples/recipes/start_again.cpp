// Starts a part of the program again when it has failed, but not too often.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <stdexcept>

using namespace std::chrono_literals;

template <class F>
void supervise(const vigil::context& ctx, F part) {
  vigil::rate_limiter starts(vigil::rate::per(3, 1min), 3);  // three at once, then every 20 s
  for (;;) {
    starts.wait(ctx);
    try {
      part(ctx);
      return;
    } catch (const std::exception& e) {
      if (ctx.is_done()) throw;
      std::printf("failed: %s\n", e.what());
    }
  }
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto start = vigil::clock::now();
    int runs = 0;
    supervise(vigil::background(), [&](const vigil::context& ctx) {
      std::printf("run %d after %d s\n", ++runs, int((vigil::clock::now() - start) / 1s));
      vigil::sleep_for(1s, ctx);
      if (runs < 5) throw std::runtime_error("the connection is lost");
    });
    std::puts("ended by itself");
  });
}

//! [recipe]
