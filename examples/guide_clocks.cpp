// The code of docs/guide/clocks.md, on virtual time. Each function is one passage there.
//
// Run:    build/release/examples/guide_clocks
// Prints: what each passage does.
#include <vigil/clocks.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

namespace {

// The time of day of the virtual wall clock.
void say(const char* what) {
  const auto now = std::chrono::floor<std::chrono::seconds>(vigil::wall_clock::now());
  const std::chrono::hh_mm_ss day(now - std::chrono::floor<std::chrono::days>(now));
  std::printf("%02d:%02d:%02d %s\n",
              static_cast<int>(day.hours().count()),
              static_cast<int>(day.minutes().count()),
              static_cast<int>(day.seconds().count()),
              what);
}

void sleeping() {
  //! [sleep]
  using namespace std::chrono;
  const auto today = floor<days>(vigil::wall_clock::now());
  vigil::wall::sleep_until(today + 9h);  // nine o'clock, UTC
  say("good morning");
  vigil::boot::sleep_for(8h);  // eight hours, whether the machine sleeps or not
  say("good evening");
  //! [sleep]
}

void a_callback() {
  //! [callback]
  const auto closing = std::chrono::floor<std::chrono::days>(vigil::wall_clock::now()) + 18h;
  auto last_call = vigil::wall::after_func_at(closing - 30min, [] { say("last call"); });
  auto close = vigil::wall::after_func_at(closing, [] { say("closed"); });

  close.reset(closing + 1h);  // true: it was pending, and waits for 19:00 now
  //! [callback]
  vigil::sleep_for(3h);
}

// The select is laid out by hand.
// clang-format off
void a_lease(const vigil::receiver<int>& requests) {
  //! [timer]
  vigil::boot::timer lease(vigil::boot_clock::now() + 1h);
  for (bool held = true; held;) {
    vigil::select(
        vigil::on_recv(requests, [] { say("served"); }),
        vigil::on_recv(lease.channel(), [&held] { held = false; }));
  }
  say("the lease is over");
  //! [timer]
}

// clang-format on

void until_then(vigil::context parent) {
  //! [context]
  auto [ctx, cancel] = vigil::with_cancel(parent);
  const auto end = vigil::wall_clock::now() + 1h;
  auto ends = vigil::wall::after_func_at(end, [cancel = cancel] { cancel(); });
  //! [context]
  ctx.done().recv();
  say("the context is done");
}

void full_seconds() {
  vigil::sleep_for(300ms);
  //! [aligned]
  const auto beat = vigil::ticker::aligned(1s);
  for (int i = 0; i < 3; ++i) {
    beat.channel().recv();  // the full second, as a time point of the wall clock
    say("a full second");
  }
  //! [aligned]
}

void stepping() {
  //! [step]
  const auto due = vigil::wall_clock::now() + 1h;
  auto sleeper = vigil::spawn([due] {
    vigil::wall::sleep_until(due);
    say("it is time");
  });
  vigil::sleep_for(10min);
  vigil::testing::step_wall(-30min);  // it waits half an hour longer
  vigil::sleep_for(40min);
  vigil::testing::step_wall(2h);  // it is overdue, and ends now
  sleeper.join();
  //! [step]
}

void suspending() {
  //! [suspend]
  auto counted = vigil::spawn([] { vigil::boot::sleep_for(8h); });
  auto not_counted = vigil::spawn([] { vigil::sleep_for(8h); });
  vigil::testing::settle();          // both sleep
  vigil::testing::suspend_for(10h);  // the lid is closed over night
  counted.join();
  say("eight hours of boot time are over");
  not_counted.join();
  say("eight hours of vigil::clock are over");
  //! [suspend]
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    sleeping();
    a_callback();
    auto requests = vigil::make_channel<int>();
    auto asking = vigil::spawn([requests] {
      vigil::sleep_for(20min);
      requests.send(1);
      vigil::testing::suspend_for(2h);
    });
    a_lease(requests);
    until_then(vigil::background());
    full_seconds();
    stepping();
    suspending();
  });
}
