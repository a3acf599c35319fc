// Tries again after a failure, with pauses that double, and a deadline over all tries.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

using namespace std::chrono_literals;

template <class F>
auto retry(const vigil::context& ctx, F f) {
  for (auto pause = 100ms;; pause = std::min(2 * pause, 1600ms)) {
    try {
      return f(ctx);
    } catch (const vigil::cancelled&) {
      throw;  // the deadline came during the try
    } catch (const std::exception&) {
      if (vigil::deadline_in(pause) >= ctx.deadline()) throw;  // the next try would be too late
    }
    vigil::sleep_for(pause, ctx);
  }
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 1s);
    try {
      retry(ctx, [start = vigil::clock::now()](const vigil::context& until) {
        std::printf("a try after %d ms\n", int((vigil::clock::now() - start) / 1ms));
        vigil::sleep_for(50ms, until);
        throw std::runtime_error("the server is busy");
      });
    } catch (const std::exception& e) {
      std::printf("given up: %s\n", e.what());
    }
  });
}

//! [recipe]
