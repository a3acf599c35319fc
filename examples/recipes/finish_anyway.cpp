// Finishes a step that must not be left half done, whatever ends the rest of the work.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

void move_money(const vigil::context& ctx) {
  vigil::sleep_for(10ms, ctx);  // looks up both accounts: may end here

  const vigil::this_fiber::shield no_stop;  // neither a stop, nor the end of ctx, ends these waits
  const vigil::context sure = vigil::without_cancel(ctx);
  vigil::sleep_for(20ms, sure);
  std::puts("taken from one");
  vigil::sleep_for(20ms, sure);
  std::puts("given to the other");
}

int main() {
  return vigil::testing::run_virtual([] {
    for (const auto budget : {5ms, 15ms}) {
      const auto [ctx, cancel] = vigil::with_timeout(vigil::background(), budget);
      try {
        move_money(ctx);
        if (ctx.is_done()) std::puts("moved, although the time was over");
      } catch (const vigil::cancelled&) {
        std::puts("nothing was moved");
      }
    }
  });
}

//! [recipe]
