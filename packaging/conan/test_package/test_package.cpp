#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>

int main() {
  using namespace std::chrono_literals;
  return vigil::run([] {
    auto done = vigil::after(1ms);
    vigil::select(vigil::on_recv(done, [] { std::puts("vigil says hello"); }));
  });
}
