// Reads the settings again on SIGHUP, and ends on SIGTERM.
//! [recipe]
#include <vigil/vigil.hpp>

#include <csignal>
#include <cstdio>

int main() {
  return vigil::run([] {
    const auto signals = vigil::notify_signals({SIGHUP, SIGTERM});
    std::raise(SIGHUP);  // as `kill -HUP` does
    for (const int signal : signals) {
      if (signal == SIGTERM) break;
      std::puts("the settings are read again");
      std::raise(SIGTERM);
    }
    std::puts("good-bye");
  });  // ends the other fibers
}

//! [recipe]
