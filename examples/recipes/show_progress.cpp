// Shows the progress of a job once a second while it runs.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstdio>

using namespace std::chrono_literals;

int main() {
  return vigil::testing::run_virtual([] {
    std::atomic<int> percent = 0;
    auto copy = vigil::spawn([&percent] {
      while (percent < 100) {
        vigil::sleep_for(170ms);  // a part of the work
        percent += 5;
      }
      return 42;
    });
    while (!copy.join_for(1s))
      std::printf("%d %%\n", percent.load());
    std::printf("copied %d files\n", copy.join());  // or throws what has ended the job
  });
}

//! [recipe]
