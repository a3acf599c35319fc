// Writes its metrics.
#include <vigil/inspect.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  vigil::inspect::install();
  vigil::run([] {
    for (int i = 0; i < 1'000; ++i)
      vigil::spawn([] {}, {"odd \"name\"\\\n.cpp", 7}).join();
    for (int i = 0; i < 5; ++i)
      vigil::blocking([] {});
    for (int i = 0; i < 1'000; ++i)
      vigil::go([] { vigil::sleep_for(1h); });
    // So that all have begun to sleep, whichever worker has them.
    while (vigil::stats().fibers_sleeping < 1'000)
      vigil::sleep_for(1ms);
    for (int i = 0; i < 10; ++i)
      vigil::sleep_for(1ms);
    std::fputs(vigil::inspect::openmetrics().c_str(), stdout);
  });
}
