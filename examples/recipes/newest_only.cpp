// Hands over the newest value only: the writer never waits, and old values are dropped.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

// `newest` has room for one value. There is one writer.
void put(const vigil::channel<int>& newest, int value) {
  while (newest.try_send(value).status() == vigil::channel_status::not_ready)
    static_cast<void>(newest.try_recv());  // the old one, if no reader has just taken it
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto newest = vigil::make_channel<int>(1);
    vigil::go([newest] {
      for (int degrees = 20; degrees < 30; ++degrees) {
        put(newest, degrees);
        vigil::sleep_for(100ms);
      }
      newest.close();  // the last value is still received
    });
    for (const int degrees : newest) {
      std::printf("%d degrees\n", degrees);
      vigil::sleep_for(360ms);  // a slow display
    }
  });
}

//! [recipe]
