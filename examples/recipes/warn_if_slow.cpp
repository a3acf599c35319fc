// Says so while a piece of work takes longer than it should, and lets it go on.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

using namespace std::chrono_literals;

template <class F>
auto watched(const std::string& name, vigil::clock::duration expected, F work) {
  const vigil::scoped_timer alarm = vigil::after_func(
      expected, [&name] { std::printf("%s takes longer than usual\n", name.c_str()); });
  return work();
}  // the alarm is stopped, and not running: `name` may go

int main() {
  return vigil::testing::run_virtual([] {
    for (const auto takes : {100ms, 700ms}) {
      const int rows = watched("the query", 500ms, [takes] {
        vigil::sleep_for(takes);
        return 3;
      });
      std::printf("%d rows\n", rows);
    }
  });
}

//! [recipe]
