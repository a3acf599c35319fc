// Writes a dump in the handler of SIGQUIT; with an argument, what its fiber's stack
// holds.
#include "inspect/ten_waits.hpp"

#include <vigil/inspect.hpp>

#include <csignal>
#include <cstdio>

int main(int argc, char**) {
  if (argc > 1) {
    for (const std::string& f : ten_waits::functions_of<ten_waits::locking>())
      std::puts(f.c_str());
    return 0;
  }
  std::signal(SIGQUIT, SIG_DFL);  // a shell ignores it for what it runs in the background
  vigil::inspect::install();
  vigil::testing::run_virtual([] {
    ten_waits::objects o;
    const std::lock_guard holds(o.locked);
    const auto f = vigil::spawn([&o] {
      try {
        ten_waits::nested<ten_waits::locking, ten_waits::locking::depth>::call(o);
      } catch (const vigil::cancelled&) {
      }
    });
    vigil::testing::settle();
    std::raise(SIGQUIT);
    o.context.cancel();
  });
}
