// Shows what each fiber waits for, and since when.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

using namespace std::chrono_literals;

int main() {
  return vigil::testing::run_virtual([] {
    vigil::mutex cache;
    vigil::group requests;
    requests.go([&cache] {
      vigil::this_fiber::set_name("first");
      const std::lock_guard lock(cache);
      vigil::sleep_for(5s);
    });
    vigil::sleep_for(1s);
    requests.go([&cache] {
      vigil::this_fiber::set_name("second");
      const std::lock_guard lock(cache);
    });
    vigil::sleep_for(2s);
    vigil::debug::dump(stdout);  // any time, on any thread; or: kill -QUIT
  });
}

//! [recipe]
