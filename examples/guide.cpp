// The code of the guide (docs/guide), on virtual time. Each function is a passage of it.
//
// Run:    build/release/examples/guide
// Prints: what each passage does.
//! [headers]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>
//! [headers]

#include <cassert>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;

namespace {

void stop_and_reset() {
  //! [stop_and_reset]
  auto t = vigil::after_func(1s, [] { std::puts("it ran"); });

  bool pending = t.stop();  // true: this arming will not run
  pending = t.stop();       // false: nothing was pending
  pending = t.reset(2s);    // false: nothing was pending; it is now
  pending = t.reset(3s);    // true: it was pending, and its deadline has moved

  vigil::sleep_for(3s + 1ms);
  pending = t.stop();  // false: it has run
  //! [stop_and_reset]
  assert(!pending);
  static_cast<void>(pending);
}

void repeating() {
  //! [repeating]
  int runs = 0;
  vigil::scoped_timer beat = vigil::every(100ms, [&runs] {
    // Due at 100, 200, …; the second run takes 250 ms, so the runs of 300 and
    // 400 collapse into one, at once after it; then at 500 again.
    if (++runs == 2) vigil::sleep_for(250ms);
  });
  vigil::sleep_for(550ms);
  beat->stop_and_wait();  // no run is under way any more; the end of the scope does the same
  std::printf("%d runs\n", runs);
  //! [repeating]
}

void cleaning_up() {
  struct connection {
    //! [shield]
    ~connection() {
      const vigil::this_fiber::shield s;  // the wait below does not throw `stopped`
      vigil::sleep_for(10ms);             // says goodbye to the other side
      std::puts("closed");
    }

    //! [shield]
  };

  auto f = vigil::spawn([] {
    const connection c;
    vigil::sleep_for(1h);
  });
  vigil::sleep_for(1s);
  f.request_stop();
  //! [join_errors]
  try {
    f.join();
  } catch (const vigil::cancelled&) {
    std::puts("it was asked to stop");
  }

  auto broken = vigil::spawn([]() -> int { throw std::runtime_error("no such file"); });
  try {
    std::printf("%d\n", broken.join());
  } catch (const std::exception& e) {
    std::printf("it failed: %s\n", e.what());
  }
  //! [join_errors]
}

void with_timeout() {
  //! [join_for]
  auto slow = vigil::spawn([] {
    vigil::sleep_for(10s);
    return 7;
  });
  if (!slow.join_for(1s)) std::puts("not yet");
  std::printf("%d\n", slow.join());
  //! [join_for]
}

// Keeps its thread until it has the answer, as many libraries do.
int ask(const std::string& question) {
  std::this_thread::sleep_for(1ms);
  return static_cast<int>(question.size());
}

void calls_that_block() {
  //! [blocking]
  const std::string question = "how many?";
  const int answer = vigil::blocking([question] { return ask(question); });

  // At most a second. The call itself goes on after that, and its result is dropped.
  const auto soon = vigil::blocking_for(1s, [question] { return ask(question); });
  if (!soon) std::puts("no answer yet");
  //! [blocking]
  std::printf("the answer is %d\n", answer);
}

}  // namespace

//! [virtual_test]
// Tests a day's worth of retries. It takes a few microseconds, and its times are exact.
void retries_once_an_hour() {
  vigil::testing::run_virtual([] {
    int tries = 0;
    const vigil::scoped_timer retry = vigil::every(1h, [&tries] { ++tries; });
    vigil::sleep_for(24h);
    vigil::testing::settle();  // lets the run that is due now go first
    assert(tries == 24);
    assert(vigil::clock::now() == vigil::testing::epoch + 24h);
    std::printf("%d tries\n", tries);
  });
}

//! [virtual_test]

namespace {

// Begins nothing, and sends the signal that the passage below waits for.
void start_serving() {
  std::raise(SIGTERM);
}

int ends_tidily() {
  //! [signals]
  vigil::options settings;
  settings.stop_on = {SIGINT, SIGTERM};  // of <csignal>
  const int status = vigil::run(settings, [] {
    start_serving();
    vigil::background().done().recv();  // until a signal comes
    std::puts("finishing what has begun");
  });
  //! [signals]
  return status;
}

}  // namespace

int main() {
  vigil::testing::run_virtual([] {
    stop_and_reset();
    repeating();
    cleaning_up();
    with_timeout();
    calls_that_block();
  });
  retries_once_an_hour();
  std::printf("ended with %d\n", ends_tidily());
}
