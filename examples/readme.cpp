// The program on the first page of the README: a fiber that sends, a ticker, a
// deadline, and a select that waits for whichever comes first.
//
// Run:    build/release/examples/readme
// Prints: two ticks and the line.

// The select is laid out by hand: each case begins a line.
// clang-format off
//! [program]
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <string>

using namespace std::chrono_literals;

int main() {
  return vigil::run([] {
    auto lines = vigil::make_channel<std::string>();
    vigil::go([lines] {
      vigil::sleep_for(500ms);  // parks this fiber; its thread goes on with others
      lines.send("hello");
    });

    vigil::ticker beat(200ms);
    auto too_late = vigil::after(2s);  // one deadline for the whole loop
    for (bool done = false; !done;) {
      vigil::select(
          vigil::on_recv(lines, [&](std::optional<std::string> line) {
            std::puts(line->c_str());
            done = true;
          }),
          vigil::on_recv(beat.channel(), [] { std::puts("tick"); }),
          vigil::on_recv(too_late, [&] {
            std::puts("too late");
            done = true;
          }));
    }
  });
}
//! [program]
