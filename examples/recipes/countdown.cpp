// Counts down once a second, unless a key is pressed.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

bool count_down(int from, const vigil::receiver<char>& keys) {
  const vigil::ticker second(1s);
  bool pressed = false;
  for (int n = from; n > 0 && !pressed; --n) {
    std::printf("%d\n", n);
    vigil::select_ordered(vigil::on_recv(keys, [&pressed] { pressed = true; }),
                          vigil::on_recv(second.channel()));
  }
  return !pressed;
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto keys = vigil::make_channel<char>(1);
    std::puts(count_down(3, keys) ? "lift-off" : "stopped");
    const auto pressing = vigil::after_func(2500ms, [keys] { keys.send('x'); });
    std::puts(count_down(10, keys) ? "lift-off" : "stopped");
  });
}

//! [recipe]
