// dining_philosophers: five at a round table, with a fork between any two neighbours, and
// each needs both. A philosopher that cannot get the second fork soon puts the first one
// back.
//
// Run it:     build/release/examples/patterns/dining_philosophers
// It prints:  how many meals there were, and how often a fork served two at once. It runs
//             on virtual time; VIGIL_SEED=2, 3, ... are other evenings.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>

using namespace std::chrono_literals;

namespace {

struct dinner {
  static constexpr std::size_t seats = 5;
  std::array<vigil::channel<void>, seats> forks;  // a value in it: the fork is on the table
  std::array<int, seats> users{};                 // users of each fork
  std::atomic<int> meals = 0, quarrels = 0;
};

void dine(dinner& table, std::size_t seat) {
  const std::size_t left = seat, right = (seat + 1) % dinner::seats;
  for (int hunger = 3; hunger > 0;) {
    vigil::sleep_for((seat + 1) * 1ms);  // thinks, each at its own pace
    table.forks[left].recv();
    if (table.forks[right].recv_for(10ms)) {
      if (++table.users[left] + ++table.users[right] > 2) ++table.quarrels;
      vigil::sleep_for(20ms);
      --table.users[left];
      --table.users[right];
      ++table.meals;
      --hunger;
      table.forks[right].send();
    }
    table.forks[left].send();
  }
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    dinner table;
    for (auto& fork : table.forks) {
      fork = vigil::make_channel<void>(1);
      fork.send();
    }
    std::array<vigil::fiber<>, dinner::seats> guests;
    for (std::size_t seat = 0; seat < guests.size(); ++seat)
      guests[seat] = vigil::spawn([&table, seat] { dine(table, seat); });
    for (auto& guest : guests)
      guest.join();
    std::printf("%d meals, %d quarrels\n", table.meals.load(), table.quarrels.load());
  });
}
