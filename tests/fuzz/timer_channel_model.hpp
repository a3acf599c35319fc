// The model of a timer's channel: the deadline in force, and the fibers that wait.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace fuzz {

// A fiber in a wait for one or two channels.
struct waiting {
  nanos since = 0;
  nanos until = no_deadline;
  bool on_one = true;
};

class in_line {
 public:
  in_line(std::vector<const waiting*>& line, const waiting& w) : line_(line), waiting_(w) {
    line.push_back(&w);
  }

  ~in_line() { std::erase(line_, &waiting_); }

  in_line(const in_line&) = delete;
  in_line& operator=(const in_line&) = delete;

 private:
  std::vector<const waiting*>& line_;
  const waiting& waiting_;
};

struct timer_channel_model {
  nanos due = no_deadline;
  nanos since = 0;  // of that deadline
  nanos period = 0;
  nanos slack = 0;  // the largest since then
  nanos slack_now = 0;
  std::uint64_t missed = 0;
  std::vector<const waiting*> waiters;  // in the order of their coming
  std::vector<nanos> handed;            // to waiters that have not run since

  [[nodiscard]] bool is_pending() const { return due != no_deadline; }

  [[nodiscard]] bool is_due() const { return due <= now(); }

  [[nodiscard]] nanos rings() const { return std::max(saturated(due, slack), since); }

  void set(nanos deadline) {
    due = std::min(deadline, latest);
    since = now();
    slack = slack_now;
  }

  bool stop() { return std::exchange(due, no_deadline) != no_deadline; }

  // Takes the value that is due.
  nanos take() {
    expect(is_due(), "a value comes before its time");
    const nanos value = due;
    if (period == 0) {
      due = no_deadline;
      return value;
    }
    nanos next = due + period;
    for (; next <= now(); next += period)
      ++missed;
    due = next;  // of the same arming: a new slack need not count yet
    since = now();
    return value;
  }
};

}  // namespace fuzz
