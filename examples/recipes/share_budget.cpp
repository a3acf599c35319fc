// Gives several steps one budget of time together.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

void step(const char* name, vigil::clock::duration takes, const vigil::context& ctx) {
  vigil::sleep_for(takes, ctx);  // every wait of the step is given the context
  const auto left = ctx.deadline() - vigil::clock::now();
  std::printf("%s: done, %d ms are left\n", name, int(left / 1ms));
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 1s);
    const auto start = vigil::clock::now();
    try {
      step("connect", 300ms, ctx);
      step("log in", 400ms, ctx);
      step("fetch", 500ms, ctx);
    } catch (const vigil::cancelled& e) {
      if (e.code() != std::errc::timed_out) throw;  // something else has ended it
      std::printf("too late after %d ms\n", int((vigil::clock::now() - start) / 1ms));
    }
  });
}

//! [recipe]
