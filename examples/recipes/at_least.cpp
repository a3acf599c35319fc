// Shows a picture for at least two seconds, and longer only if the start takes longer.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

template <class F>
auto at_least(vigil::clock::duration d, F work) {
  const auto until = vigil::deadline_in(d);
  auto result = work();
  vigil::sleep_until(until);  // returns at once if that has passed
  return result;
}

int main() {
  return vigil::testing::run_virtual([] {
    for (const auto takes : {300ms, 3000ms}) {
      const auto start = vigil::clock::now();
      const int plugins = at_least(2s, [takes] {
        vigil::sleep_for(takes);
        return 7;
      });
      const auto shown = vigil::clock::now() - start;
      std::printf("%d plugins, shown for %d ms\n", plugins, int(shown / 1ms));
    }
  });
}

//! [recipe]
