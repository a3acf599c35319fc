// Finds out what keeps a program from ending.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  vigil::testing::virtual_options options;
  options.runtime.exit = vigil::exit_when::all_done;
  return vigil::testing::run_virtual(options, [] {
    vigil::go([] { vigil::sleep_for(1h); });
    vigil::every(1min, [runs = 0](vigil::timer& self) mutable {
      if (++runs == 90) self.stop();
    });
    const auto idle = vigil::after_func(24h, [] { std::puts("nothing was done for a day"); });
    idle.unref();  // this one does not keep it
    vigil::sleep_for(1s);
    vigil::debug::holders(stdout);  // any time, on any thread
  });
}

//! [recipe]
