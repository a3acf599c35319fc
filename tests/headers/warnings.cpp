// A program that is built with more warnings than vigil gets none from vigil, neither in
// a header nor for settings that name only some fields.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <csignal>
#include <vector>

namespace vigil::headers_test {

void settings_by_name() {
  static_cast<void>(vigil::options{.workers = 2});
  static_cast<void>(vigil::options{.stop_on = {SIGINT, SIGTERM}});
  static_cast<void>(vigil::options{.stop_on = std::vector<int>{SIGINT}});
  static_cast<void>(vigil::fiber_options{.name = "named"});
  static_cast<void>(vigil::group_options{.limit = 2});
  static_cast<void>(vigil::blocking_options{.threads = 2});
  static_cast<void>(vigil::testing::virtual_options{.seed = 2});
}

// Templates warn where they are used.
void uses() {
  vigil::run({.workers = 1}, [] {
    const auto f = [] {};
    vigil::after_func(std::chrono::seconds(1), f);
    vigil::rate_limiter limiter(vigil::rate::every(std::chrono::seconds(1)), 1);
    auto right = limiter.reserve();
    right = limiter.reserve();
  });
}

}  // namespace vigil::headers_test
