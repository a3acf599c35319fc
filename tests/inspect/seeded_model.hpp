// seeded_model: the run that the seed dictates to a seeded_program on virtual time, from
// the rules of vigil/testing.hpp and the draws of the seed. It shares nothing with the
// scheduler but the generator.
//
//   R1  Time stands still while anything can run, and then jumps to the next deadline.
//   R2  All that is due at an instant fires first, in the order of the ties that the seed
//       drew, one for each arming. Fibers whose waits are over become ready after it.
//   R3  The seed draws the next fiber from all that are ready. The callbacks that are due
//       are one lot among them. A fiber that yielded joins when those before it have run.
#pragma once

#include "inspect/seeded_program.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vigil::testing_support {

class seeded_model {
 public:
  seeded_model(script steps, std::uint64_t seed)
      : steps_(std::move(steps)),
        dice_(seed),
        tie_seed_(seed ^ 0x7469'6573),
        fibers_(steps_.size()),
        timers_(3 * steps_.size()) {
    begin();
    while (!over_)
      turn();
  }

  // In the words of recorded_lines(), which has them from the recorder.
  const std::vector<std::string>& events() const noexcept { return events_; }

  // In the words of seeded_program.
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  static constexpr std::size_t main_fiber = 1'000;
  using nanos = std::int64_t;

  struct fiber_state {
    std::size_t at = 0;
    bool has_begun = false;  // the step
    bool was_late = false;
    bool is_over = false;
    std::size_t sent_by = 0;
  };

  enum class purpose : std::uint8_t { wait, channel, callback };

  // Those of fiber i: i for its waits, then as many for callbacks, and for channels.
  struct timer_state {
    purpose for_what = purpose::wait;
    nanos when = 0;  // 0: idle
    std::uint64_t tie = 0;
    bool is_queued = false;
    bool is_made = false;
    bool has_fired = false;
  };

  // --- telling

  void say(const std::string& text, const char* log = "0") {
    events_.push_back(log + (" " + std::to_string(now_)) + " " + text);
  }

  void note(const std::string& text) { notes_.push_back(std::to_string(now_) + " " + text); }

  static std::string name(std::size_t f) {
    return f == main_fiber ? "main" : "f" + std::to_string(f);
  }

  // --- the scheduler

  void begin() {
    say("start timer fiber by nobody at vigil:0", "outside");
    say("start callbacks by nobody at vigil:0", "outside");
    say("start main by nobody at vigil::run:0", "outside");
    say("ready main", "outside");
    say("run main");
    for (std::size_t i = 0; i < fibers_.size(); ++i) {
      say("start " + name(i) + " by main at seeded program:10");
      make_ready(i);
    }
    run_main();
  }

  void make_ready(std::size_t f) {
    say("ready " + name(f));
    bag_.push_back(f);
  }

  void park(std::size_t f, const char* why) { say("leave " + name(f) + ", parked: " + why); }

  // R3
  void turn() {
    const bool callbacks = !due_.empty();
    if (!yielded_.empty() && (before_yielded_ == 0 || (bag_.empty() && !callbacks))) {
      bag_.insert(bag_.end(), yielded_.begin(), yielded_.end());
      yielded_.clear();
    }
    if (before_yielded_ != 0) --before_yielded_;
    const auto lots = static_cast<std::uint32_t>(bag_.size() + (callbacks ? 1 : 0));
    if (lots == 0) return jump();
    const std::size_t drawn = lots == 1 ? 0 : dice_.below(lots);
    if (drawn == bag_.size()) return run_callbacks();
    const std::size_t f = std::exchange(bag_[drawn], bag_.back());
    bag_.pop_back();
    say("run " + name(f));
    if (f == main_fiber) {
      run_main();
    } else {
      run_steps(f);
    }
  }

  // R1, R2
  void jump() {
    nanos next = 0;
    for (const timer_state& t : timers_) {
      if (t.when != 0 && !t.has_fired && (next == 0 || t.when < next)) next = t.when;
    }
    if (next == 0) {
      say("deadlock");
      over_ = true;
      return;
    }
    now_ = next;
    std::vector<std::size_t> due;
    for (std::size_t i = 0; i < timers_.size(); ++i) {
      if (timers_[i].when == now_ && !timers_[i].has_fired) due.push_back(i);
    }
    std::ranges::sort(due, {}, [this](std::size_t i) { return timers_[i].tie; });
    say("run timer fiber");
    std::vector<std::size_t> ready;
    for (const std::size_t i : due)
      fire(i, ready);
    for (const std::size_t f : ready)
      make_ready(f);
    say("leave timer fiber, parked: timers");
  }

  void fire(std::size_t i, std::vector<std::size_t>& ready) {
    timer_state& t = timers_[i];
    t.has_fired = true;
    switch (t.for_what) {
      case purpose::wait:
        say("fire deadline of a wait, late by 0");
        t.when = 0;
        fibers_[i].was_late = true;
        std::erase(at_bell_, i);
        ready.push_back(i);
        break;
      case purpose::channel:
        say("fire timer's channel, late by 0");
        t.when = 0;
        make_ready(i - 2 * fibers_.size());
        break;
      case purpose::callback:
        say("due callback is due, late by 0");
        if (!t.is_queued) due_.push_back(i);
        t.is_queued = true;
        break;
    }
  }

  void run_callbacks() {
    say("run callbacks at vigil:0");
    while (!due_.empty()) {
      const std::size_t i = due_.front();
      due_.pop_front();
      timer_state& t = timers_[i];
      t.is_queued = false;
      // It may have been stopped, or set to a later time.
      if (t.when != 0 && t.when <= now_) {
        t.when = 0;
        say("fire callback is due, late by 0");
        say("run callbacks at seeded program:20");
        ring(i - fibers_.size());
      }
      say("run callbacks at vigil:0");
    }
    say("leave callbacks, parked: a callback to run");
  }

  void arm(std::size_t i, purpose for_what, std::chrono::nanoseconds after) {
    timer_state& t = timers_[i];
    const nanos deadline =
        now_ + seeded_program::delay(std::chrono::nanoseconds(now_), after).count();
    say((t.when != 0 ? "reset timer to " : "arm timer for ") + std::to_string(deadline));
    t.for_what = for_what;
    t.when = deadline;
    t.tie = detail::random::nth(tie_seed_, armings_++) >> 33;
    t.is_made = true;
    t.has_fired = false;
  }

  bool stop(std::size_t i) {
    if (timers_[i].when == 0) return false;
    timers_[i].when = 0;
    say("stop timer");
    return true;
  }

  // --- the program

  void run_main() {
    while (joined_ < fibers_.size() && fibers_[joined_].is_over)
      ++joined_;
    if (joined_ < fibers_.size()) return park(main_fiber, "join");
    for (std::size_t i = 0; i < fibers_.size(); ++i)
      stop(i + fibers_.size());
    note("main is over");
    over_ = true;
  }

  void ring(std::size_t i) {
    const bool is_awaited = !at_bell_.empty();
    const bool taken = is_awaited || !bell_has_value_;
    if (is_awaited) {
      make_ready(at_bell_.front());
      at_bell_.pop_front();
    } else {
      bell_has_value_ = true;
    }
    note("alarm " + std::to_string(i) + (taken ? " rings" : " is not heard"));
  }

  void run_steps(std::size_t f) {
    fiber_state& s = fibers_[f];
    while (s.at < steps_[f].size()) {
      const step& now = steps_[f][s.at];
      std::optional<std::string> result;
      if (!std::exchange(s.has_begun, true)) {
        note(name(f) + " begins step " + std::to_string(s.at));
        result = take(f, now);
        if (!result) return;
      } else {
        result = go_on(f, now);
      }
      note(name(f) + " has done step " + std::to_string(s.at) + *result);
      s.has_begun = false;
      ++s.at;
    }
    s.is_over = true;
    if (joined_ == f) make_ready(main_fiber);
    say("leave " + name(f) + ", ended");
  }

  // Returns what the program notes of it; nothing if the fiber parks.
  std::optional<std::string> take(std::size_t f, const step& s) {
    switch (s.what) {
      case act::sleep:
        arm(f, purpose::wait, s.time);
        park(f, "sleep");
        return {};
      case act::yield:
        if (bag_.empty() && yielded_.empty() && due_.empty()) return "";
        say("leave " + name(f) + ", yielded");
        if (yielded_.empty()) before_yielded_ = bag_.size();
        yielded_.push_back(f);
        return {};
      case act::send:
        if (receivers_.empty()) {
          senders_.push_back(f);
          park(f, "channel send");
          return {};
        }
        fibers_[receivers_.front()].sent_by = f;
        make_ready(receivers_.front());
        receivers_.pop_front();
        return "";
      case act::recv:
        if (senders_.empty()) {
          receivers_.push_back(f);
          park(f, "channel receive");
          return {};
        }
        fibers_[f].sent_by = senders_.front();
        make_ready(senders_.front());
        senders_.pop_front();
        return go_on(f, s);
      case act::await_bell:
        if (std::exchange(bell_has_value_, false)) return ", heard";
        at_bell_.push_back(f);
        arm(f, purpose::wait, s.time + s.aside);
        park(f, "channel receive");
        return {};
      case act::await_tick:
        arm(f + 2 * fibers_.size(), purpose::channel, s.time);
        park(f, "channel receive");
        return {};
      case act::set_alarm: {
        const timer_state& t = timers_[f + fibers_.size()];
        const std::string before = !t.is_made ? "" : t.when != 0 ? ", was set" : ", was idle";
        arm(f + fibers_.size(), purpose::callback, t.is_made ? s.time + s.aside : s.time);
        return before;
      }
      case act::stop_alarm:
        if (!timers_[f + fibers_.size()].is_made) return "";
        return stop(f + fibers_.size()) ? ", was set" : ", was idle";
    }
    return "";
  }

  // After the wait.
  std::string go_on(std::size_t f, const step& s) {
    if (s.what == act::recv) return " from f" + std::to_string(fibers_[f].sent_by);
    const bool was_late = std::exchange(fibers_[f].was_late, false);
    if (s.what != act::await_bell) return "";
    if (was_late) return ", too late";
    stop(f);
    return ", heard";
  }

  const script steps_;
  detail::random dice_;
  const std::uint64_t tie_seed_;
  std::uint64_t armings_ = 0;
  nanos now_ = 0;
  bool over_ = false;
  std::size_t joined_ = 0;
  bool bell_has_value_ = false;
  std::vector<fiber_state> fibers_;
  std::vector<timer_state> timers_;
  std::vector<std::size_t> bag_{};
  std::vector<std::size_t> yielded_{};
  std::size_t before_yielded_ = 0;
  std::deque<std::size_t> due_{};
  std::deque<std::size_t> senders_{};
  std::deque<std::size_t> receivers_{};
  std::deque<std::size_t> at_bell_{};
  std::vector<std::string> events_{};
  std::vector<std::string> notes_{};
};

}  // namespace vigil::testing_support
