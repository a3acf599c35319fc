// Lets ten thousand coroutines wait at a time, for a few hundred bytes each.
//! [recipe]
#include <vigil/co.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <vector>

using namespace std::chrono_literals;
namespace co = vigil::co;

vigil::task<int> visit(int n) {
  co_await co::sleep_for(1s);
  co_return n % 10;
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto start = vigil::clock::now();
    std::vector<vigil::task_handle<int>> visits;
    for (int n = 0; n < 10'000; ++n)
      visits.push_back(vigil::spawn(visit(n)));
    vigil::wait_all(visits);
    int sum = 0;
    for (auto& each : visits)
      sum += each.join();  // or throws what has ended it
    std::printf("%d after %d ms\n", sum, int((vigil::clock::now() - start) / 1ms));
  });
}

//! [recipe]
