// sleep_sort: sorts numbers by sleeping, one fiber for each number.
//
// Run it:     build/release/examples/sleep_sort
// It prints:  1 1 2 3 4 5 6 9, a line each; the number n comes n tenths of a second after
//             the start. Two fibers whose deadlines lie very close together may swap on
//             real time; on virtual time the order is exact.
#include "example.hpp"

#include <chrono>
#include <vector>

using namespace std::chrono_literals;

int main() {
  return example_main([] {
    //! [sort]
    std::vector<vigil::fiber<>> sleepers;
    for (const int number : {3, 1, 4, 1, 5, 9, 2, 6}) {
      sleepers.push_back(vigil::spawn([number] {
        vigil::sleep_for(number * 100ms);
        std::printf("%d\n", number);
      }));
    }
    for (auto& sleeper : sleepers)
      sleeper.join();
    //! [sort]
  });
}
