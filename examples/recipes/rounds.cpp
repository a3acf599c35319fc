// Lets all fibers finish a round before any of them begins the next.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <deque>

using namespace std::chrono_literals;

int main() {
  return vigil::testing::run_virtual([] {
    const auto start = vigil::clock::now();
    std::deque<vigil::latch> rounds;  // each is used once
    for (int round = 0; round < 2; ++round)
      rounds.emplace_back(3);

    vigil::group players;
    for (int player = 1; player <= 3; ++player) {
      players.go([&, player](const vigil::context& ctx) {
        for (vigil::latch& end : rounds) {
          vigil::sleep_for(player * 10ms, ctx);
          const auto passed = vigil::clock::now() - start;
          std::printf("player %d is ready after %d ms\n", player, int(passed / 1ms));
          end.arrive_and_wait(ctx);  // not for ever, if another player fails
        }
      });
    }
    players.wait();
  });
}

//! [recipe]
