// The code of docs/guide/time.md about timers with channels, on virtual time. Each
// function is one passage there.
//
// Run:    build/release/examples/guide_timers
// Prints: what each passage does.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

using namespace std::chrono_literals;

// The selects are laid out by hand: each case begins a line.
// clang-format off

namespace {

void say(bool pending) {
  std::puts(pending ? "true" : "false");
}

void the_value() {
  //! [after]
  const auto start = vigil::clock::now();
  auto lunch = vigil::after(30min);
  vigil::sleep_for(2h);  // too busy; nothing is in the heap meanwhile
  const std::optional<vigil::clock::time_point> due = lunch.recv();
  if (*due == start + 30min) std::puts("it was due 30 minutes after the start");
  //! [after]
}

void stop_and_reset() {
  //! [timer]
  vigil::timer t(1s);
  say(t.stop());         // true: it will not come
  say(t.reset(1s));      // false: it was not pending; it is now
  vigil::sleep_for(2s);  // it is due, and nobody has received it:
  say(t.reset(1s));      // true, and the due value cannot be received any more
  t.channel().recv();    // a second later
  say(t.stop());         // false: it has been received
  //! [timer]
}

void idle_timeout(const vigil::receiver<std::string>& messages) {
  //! [idle]
  vigil::timer idle(30s);
  for (bool open = true; open;) {
    vigil::select(
        vigil::on_recv(messages, [&](std::optional<std::string> message) {
          std::puts(message->c_str());
          idle.reset(30s);
        }),
        vigil::on_recv(idle.channel(), [&open] { open = false; }));
  }
  std::puts("nothing for 30 seconds");
  //! [idle]
}

void slow_receiver() {
  //! [ticker]
  const auto start = vigil::clock::now();
  vigil::ticker beat(100ms);
  for (int i = 0; i < 4; ++i) {
    const auto due = *beat.channel().recv();
    std::printf("the tick of %d ms", static_cast<int>((due - start) / 1ms));
    std::printf(", %d missed\n", static_cast<int>(beat.missed()));
    if (i == 1) vigil::sleep_for(350ms);  // sleeps from 200 to 550 ms
  }
  //! [ticker]
}

void first_tick() {
  //! [first]
  vigil::ticker now_and_hourly(0s, 1h);  // the first tick at once
  vigil::ticker later(10min, 1h);        // the first one after ten minutes
  //! [first]
  const auto start = vigil::clock::now();
  now_and_hourly.channel().recv();
  if (vigil::clock::now() == start) std::puts("at once");
  later.channel().recv();
  later.stop();
  if (vigil::clock::now() == start + 10min) std::puts("after ten minutes");
}

void in_a_scope() {
  //! [scoped]
  int beats = 0;
  {
    const vigil::scoped_timer beat = vigil::every(100ms, [&beats] { ++beats; });
    vigil::sleep_for(350ms);
  }  // stopped, and no run is under way: `beats` may go
  std::printf("%d beats\n", beats);
  //! [scoped]
}

//! [own_timer]
struct session {
  int beats = 0;

  ~session() { std::puts("the session is over"); }

  static void begin(const std::shared_ptr<session>& s) {
    vigil::every(1s, [s](vigil::timer& self) {
      if (++s->beats == 3) self.stop();  // this was the last run: the session goes with it
    });
  }
};
//! [own_timer]

void with_timeout(const vigil::receiver<int>& a, const vigil::receiver<int>& b) {
  //! [on_timeout]
  vigil::select(
      vigil::on_recv(a, [] { std::puts("a"); }),
      vigil::on_recv(b, [] { std::puts("b"); }),
      vigil::on_timeout(1s, [] { std::puts("neither within a second"); }));

  const auto deadline = vigil::clock::now() + 1s;  // for both selects together
  for (int i = 0; i < 2; ++i) {
    vigil::select(
        vigil::on_recv(a, [] { std::puts("a"); }),
        vigil::on_deadline(deadline, [] { std::puts("the second is over"); }));
  }
  //! [on_timeout]
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    the_value();
    stop_and_reset();

    auto messages = vigil::make_channel<std::string>();
    auto poster = vigil::spawn([messages] {
      for (const char* text : {"hello", "world"}) {
        vigil::sleep_for(20s);
        messages.send(text);
      }
    });
    idle_timeout(messages);

    slow_receiver();
    first_tick();
    in_a_scope();
    session::begin(std::make_shared<session>());
    vigil::sleep_for(5s);
    with_timeout(vigil::make_channel<int>(), vigil::make_channel<int>());
  });
}
