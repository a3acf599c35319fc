// guide_node: the programs of docs/coming-from-node.md, one after the other.
//
// Run it:     build/release/examples/guide_node
// It prints:  the output of each, under its name.
#include "example.hpp"

#include <chrono>
#include <string>

using namespace std::chrono_literals;

namespace {

void order() {
  //! [order]
  vigil::after_func(10ms, [] {
    vigil::post([] { std::puts("posted"); });     // setImmediate
    vigil::defer([] { std::puts("deferred"); });  // process.nextTick
    std::puts("the callback");
  });
  //! [order]
}

void take_back() {
  //! [take_back]
  const vigil::timer idle = vigil::post([] { std::puts("idle"); }, vigil::stoppable);
  const bool taken_back = idle.stop();  // clearImmediate
  //! [take_back]
  std::puts(taken_back ? "taken back" : "too late");
}

void timers() {
  //! [timers]
  auto late = vigil::after_func(1h, [] { std::puts("too late"); });  // setTimeout
  late.unref();                                                      // does not hold the program

  auto beat = vigil::every(10ms, [] { std::puts("beat"); });  // setInterval
  vigil::after_func(35ms, [beat] { beat.stop(); });           // clearInterval
  //! [timers]
}

void pool() {
  //! [pool]
  const std::string text =
      vigil::blocking([] { return std::string("read, hashed or looked up on the side pool"); });
  std::puts(text.c_str());
  //! [pool]
}

}  // namespace

int main() {
  //! [all_done]
  vigil::options settings;
  settings.exit = vigil::exit_when::all_done;
  //! [all_done]
  for (const auto program : {&order, &take_back, &timers, &pool})
    example_main(settings, program);
  //! [before_end]
  settings.before_end = [] {  // process.on('beforeExit')
    static int rounds = 2;
    if (rounds == 0) return false;  // that was the end
    vigil::after_func(10ms, [] { std::printf("%d to go\n", --rounds); });
    return true;
  };
  //! [before_end]
  example_main(settings, [] { std::puts("all is done"); });
}
