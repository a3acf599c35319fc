// ping_pong: two players and a ball. The ball is one value that moves: the
// player that has it plays, the other waits.
//
// Run it:     build/release/examples/patterns/ping_pong
// It prints:  six strokes in turn, then that the game is over.
#include <vigil/vigil.hpp>

#include <cstdio>
#include <memory>
#include <utility>

namespace {

struct ball {
  int strokes = 0;
};

using side = vigil::channel<std::unique_ptr<ball>>;

//! [play]
void play(const char* name, const side& mine, const side& theirs) {
  for (std::unique_ptr<ball>& ball : mine) {
    if (ball->strokes == 6) break;
    std::printf("%s %d\n", name, ++ball->strokes);
    theirs.send(std::move(ball));
  }
  theirs.close();  // so the other player's loop ends as well
}

//! [play]

}  // namespace

int main() {
  return vigil::run([] {
    auto left = vigil::make_channel<std::unique_ptr<ball>>();
    auto right = vigil::make_channel<std::unique_ptr<ball>>();
    auto ping = vigil::spawn(play, "ping", left, right);
    auto pong = vigil::spawn(play, "pong", right, left);
    left.send(std::make_unique<ball>());
    ping.join();
    pong.join();
    std::puts("game over");
  });
}
