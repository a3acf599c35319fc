// Refuses work at once when too much is waiting already, in place of a longer queue.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  return vigil::testing::run_virtual([] {
    const auto queue = vigil::make_channel<int>(2);  // two may wait, and one is served
    auto worker = vigil::spawn([queue] {
      for (const int order : queue) {
        vigil::sleep_for(100ms);
        std::printf("order %d is done\n", order);
      }
    });
    for (int order = 1; order <= 8; ++order) {
      if (!queue.try_send(order)) std::printf("order %d: come back later\n", order);
      vigil::sleep_for(30ms);
    }
    queue.close();  // what waits is still done
    worker.join();
  });
}

//! [recipe]
