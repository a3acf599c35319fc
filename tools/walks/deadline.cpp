// A deadline: from the call of sleep_for to its return.
#include "marks.hpp"

#include <vigil/time.hpp>

int main() {
  using namespace std::chrono_literals;
  on_one_worker([] {
    vigil::spawn([] {
      for (int i = 1; i < rounds; ++i)
        vigil::sleep_for(1ms);
      walk_begins();
      vigil::sleep_for(5s);  // long enough for a worker that a debugger slows down
      walk_ends();
    }).join();
  });
}
