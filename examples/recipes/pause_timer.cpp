// Pauses a timer, and lets it run on later with the time that was left.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>

using namespace std::chrono_literals;

class egg_timer {
 public:
  explicit egg_timer(vigil::clock::duration d)
      : timer_(vigil::after_func(d, [] { std::puts("the eggs are done"); })) {}

  void pause() {
    const auto left = timer_->remaining();
    if (timer_->stop()) left_ = left;  // otherwise it has rung, or stands still already
  }

  void go_on() {
    if (left_) timer_->reset(*left_);
    left_.reset();
  }

 private:
  std::optional<vigil::clock::duration> left_;
  vigil::scoped_timer timer_;
};

int main() {
  return vigil::testing::run_virtual([] {
    egg_timer eggs(5min);
    vigil::sleep_for(2min);
    eggs.pause();  // the power is off
    vigil::sleep_for(1h);
    eggs.go_on();
    vigil::sleep_for(2min);
    std::puts("still waiting");
    vigil::sleep_for(2min);
  });
}

//! [recipe]
