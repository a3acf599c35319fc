// Lets a long computation be stopped, and other fibers run meanwhile.
//! [recipe]
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

unsigned long search() {
  for (unsigned long tried = 0, x = 1;; ++tried) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    if (x == 0) return tried;                           // which takes years
    if (tried % 1024 == 0) vigil::this_fiber::yield();  // throws `stopped` if asked to stop
  }
}

int main() {
  vigil::options settings;
  settings.workers = 1;
  return vigil::run(settings, [] {
    auto searching = vigil::spawn(search);
    vigil::sleep_for(5ms);  // ends, although there is one worker, and it is busy
    searching.request_stop();
    try {
      std::printf("found after %lu tries\n", searching.join());
    } catch (const vigil::cancelled&) {
      std::puts("stopped");
    }
  });
}

//! [recipe]
