// Tests that a function leaves no fiber and no timer behind.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>

using namespace std::chrono_literals;

std::optional<int> first_answer(vigil::clock::duration limit) {
  const auto answers = vigil::make_channel<int>();  // forgets the others: a capacity of 3 would do
  for (int server = 1; server <= 3; ++server) {
    vigil::go([answers, server] {
      vigil::sleep_for(server * 10ms);
      answers.send(server);
    });
  }
  const auto answer = answers.recv_for(limit);
  return answer ? std::optional(*answer) : std::nullopt;
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto before = vigil::stats();
    first_answer(1s);
    vigil::sleep_for(1min);  // whatever is about to end may end
    const auto after = vigil::stats();
    std::printf("fibers: %d more\n", int(after.fibers_alive - before.fibers_alive));
    std::printf("timers: %d more\n", int(after.timers_pending - before.timers_pending));
  });
}

//! [recipe]
