// Writes its metrics.
#include <vigil/inspect.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

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
    for (int i = 0; i < 10; ++i)
      vigil::sleep_for(1ms);
    // So that all have parked, whichever worker has them, and the others have ended.
    const auto is_complete = [](const std::string& text) {
      return text.find("reason=\"sleep\"} 1000\n") != std::string::npos &&
             text.find("vigil_fiber_count{runtime=\"1\"} 1001\n") != std::string::npos;
    };
    std::string text;
    // If it never is, the test says what is missing.
    for (int i = 0; i < 60'000 && !is_complete(text); ++i) {
      vigil::sleep_for(1ms);
      text = vigil::inspect::openmetrics();
    }
    std::fputs(text.c_str(), stdout);
  });
}
