// Logs the exceptions that leave fibers without a handle, and lets the program go on.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;

void log(std::exception_ptr error) {  // on the fiber that has failed
  const std::string name(vigil::this_fiber::name());
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    std::printf("%s: %s\n", name.c_str(), e.what());
  } catch (...) {
    std::printf("%s: an exception\n", name.c_str());
  }
}

int main() {
  vigil::testing::virtual_options options;
  options.runtime.on_unhandled = log;  // without it, the program ends where it was thrown
  return vigil::testing::run_virtual(options, [] {
    vigil::go({.name = "mail"}, [] { throw std::runtime_error("no such address"); });
    vigil::sleep_for(1s);
    std::puts("still here");
  });
}

//! [recipe]
