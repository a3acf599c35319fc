// seeded_program: a program for virtual time, drawn from a seed. It notes when each of
// its fibers begins and ends a step, without the flight recorder. seeded_model.hpp
// foretells the run.
#pragma once

#include "core/base/random.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace vigil::testing_support {

enum class act : std::uint8_t {
  sleep,
  yield,
  send,        // on a channel without room; the others receive as many
  recv,        // ... from it
  await_bell,  // receives, for so long, what the callbacks send
  await_tick,  // receives from a timer's channel
  set_alarm,   // arms the fiber's callback, or resets it
  stop_alarm,
};

struct step {
  act what;
  std::chrono::nanoseconds time{0};  // whole milliseconds
  // Added to deadlines that may not come; no two steps have the same. Where a timer was
  // stopped and is armed for the same instant again, nothing says which tie holds.
  std::chrono::nanoseconds aside{0};
};

// The steps of each fiber. Every run of it ends: each value that is sent is received.
using script = std::vector<std::vector<step>>;

inline script script_of(std::uint64_t seed) {
  constexpr std::size_t senders = 2;
  constexpr std::size_t fibers = 5;
  constexpr int pieces = 6;
  detail::random draws(seed * 1'000 + 17);
  int steps = 0;
  script all(fibers);
  for (std::size_t i = 0; i < fibers; ++i) {
    for (int k = 0; k < pieces; ++k) {
      constexpr act others[] = {act::sleep,
                                act::yield,
                                act::await_bell,
                                act::await_tick,
                                act::set_alarm,
                                act::set_alarm,
                                act::stop_alarm};
      for (std::uint32_t n = 1 + draws.below(3); n != 0; --n)
        all[i].push_back({others[draws.below(std::size(others))],
                          std::chrono::milliseconds(1 + draws.below(3)),
                          std::chrono::nanoseconds(++steps)});
      if (i < 2 * senders) all[i].push_back({i < senders ? act::send : act::recv});
    }
  }
  return all;
}

class seeded_program {
 public:
  // The places that the flight recorder has of it.
  static constexpr site spawned_at{"seeded program", 10};
  static constexpr site armed_at{"seeded program", 20};

  explicit seeded_program(script steps) : steps_(std::move(steps)), alarms_(steps_.size()) {}

  // From now to a deadline that is as long after the last whole millisecond: so many
  // deadlines are equal, and the seed has to order them.
  static std::chrono::nanoseconds delay(std::chrono::nanoseconds now,
                                        std::chrono::nanoseconds time) {
    return time - now % std::chrono::milliseconds(1);
  }

  // Caller: the main fiber.
  void run() {
    std::vector<fiber<>> all;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const std::string name = "f" + std::to_string(i);
      fiber_options named;
      named.name = name;
      all.push_back(spawn(
          named, [this, i] { fiber_body(i); }, spawned_at));
    }
    for (auto& f : all)
      f.join();
    for (timer& t : alarms_)
      t.stop();
    note("main", "is over");
  }

  const std::vector<std::string>& notes() const noexcept { return notes_; }

  clock::time_point start() const noexcept { return start_; }

 private:
  std::chrono::nanoseconds delay(std::chrono::nanoseconds time) const {
    return delay(clock::now() - start_, time);
  }

  void note(const std::string& whose, const std::string& what) {
    notes_.push_back(std::to_string((clock::now() - start_).count()) + " " + whose + " " + what);
  }

  void fiber_body(std::size_t i) {
    const std::string name = "f" + std::to_string(i);
    for (std::size_t k = 0; k < steps_[i].size(); ++k) {
      note(name, "begins step " + std::to_string(k));
      const std::string result = take(i, steps_[i][k]);
      note(name, "has done step " + std::to_string(k) + result);
    }
  }

  std::string take(std::size_t i, const step& s) {
    switch (s.what) {
      case act::sleep:
        sleep_for(delay(s.time));
        break;
      case act::yield:
        this_fiber::yield();
        break;
      case act::send:
        values_.send(static_cast<int>(i));
        break;
      case act::recv:
        return " from f" + std::to_string(*values_.recv());
      case act::await_bell:
        return bell_.recv_for(delay(s.time + s.aside)) ? ", heard" : ", too late";
      case act::await_tick:
        static_cast<void>(after(delay(s.time)).recv());
        break;
      case act::set_alarm:
        if (alarms_[i])
          return alarms_[i].reset(delay(s.time + s.aside)) ? ", was set" : ", was idle";
        alarms_[i] = after_func(
            delay(s.time), [this, i] { ring(i); }, armed_at);
        break;
      case act::stop_alarm:
        if (alarms_[i]) return alarms_[i].stop() ? ", was set" : ", was idle";
        break;
    }
    return "";
  }

  void ring(std::size_t i) {
    const bool taken{bell_.try_send(static_cast<int>(i))};
    note("alarm " + std::to_string(i), taken ? "rings" : "is not heard");
  }

  const script steps_;
  const clock::time_point start_ = clock::now();
  channel<int> values_ = make_channel<int>();
  channel<int> bell_ = make_channel<int>(1);
  std::vector<timer> alarms_;
  std::vector<std::string> notes_;
};

}  // namespace vigil::testing_support
