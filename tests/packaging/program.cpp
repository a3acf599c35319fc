// A user's program that needs vigil alone.
#include <vigil/vigil.hpp>

#include <cstdio>

int main() {
  return vigil::run([] {
    auto numbers = vigil::make_channel<int>();
    vigil::go([numbers](int n) { numbers.send(n); }, 42);
    std::printf("vigil says %d\n", *numbers.recv());
  });
}
