// frames: fibers inside the loop of a game, which draws frame after frame and has no use
// for a descriptor. Here nothing is drawn.
//
// Run:     build/release/examples/embedding/frames
#include <vigil/guest.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

using namespace std::chrono_literals;

namespace {

// A fiber that lives over many frames.
void open_door(double& angle) {
  for (int step = 1; step <= 9; ++step) {
    angle = step * 10.0;
    vigil::sleep_for(3ms);
  }
  std::puts("the door is open");
}

}  // namespace

int main() {
  double angle = 0;
  vigil::guest_runtime guest;

  //! [frames]
  guest.start([&] {
    auto door = vigil::spawn([&] { open_door(angle); });
    vigil::sleep_for(10ms);
    std::puts("the lamp flickers");
    door.join();
  });
  constexpr auto frame = 16ms;
  auto next = vigil::clock::now();
  while (guest.poll()) {
    // Here the frame is drawn; the fibers stand still meanwhile.
    next += frame;
    while (vigil::clock::now() < next) {
      std::this_thread::sleep_until(std::min(next, guest.next_deadline()));
      if (!guest.poll()) break;
    }
  }
  //! [frames]

  std::printf("%.0f degrees\n", angle);
}
