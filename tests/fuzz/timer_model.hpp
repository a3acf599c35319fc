// The timers with callbacks as a model, in the plainest way: one record for each, changed
// at each call and at each start and end of a callback.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace fuzz {

enum class timer_kind : std::uint8_t { once, periodic, from_end };

struct timer_model {
  timer_kind kind = timer_kind::once;
  bool has_handle = true;
  bool has_captures = true;  // told by their destructor
  bool keeps_alive = true;
  bool is_posted = false;  // by post() or defer(), and neither started nor reset since

  bool is_pending = false;
  nanos due = INT64_MAX;  // of the pending arming; in a run of from_end: not known
  nanos since = 0;        // of that arming, or the end of the run before
  nanos slack = 0;        // the largest since that arming
  nanos slack_now = 0;
  nanos period = 0;
  std::uint64_t turn = 0;  // among armings
  std::uint64_t line = 0;  // of what is posted: the turns of one line come in order; 0: of none

  int running = 0;
  int runs = 0;  // so far

  // stop_and_wait() halts a timer until its last run ends; a reset by others lifts that
  // once nobody waits any more, but not for the runs from before.
  enum class halt_state : std::uint8_t { none, halted, lifted };
  halt_state halt = halt_state::none;
  bool is_awaited = false;
  bool has_prevented = false;
  std::uint64_t lift = 0;

  void set_slack(nanos length) noexcept {
    slack_now = length;
    slack = std::max(slack, length);
  }
};

class timer_run;

class world {
 public:
  explicit world(bool as_armed) noexcept : as_armed_(as_armed) {}

  [[nodiscard]] bool is_as_armed() const noexcept { return as_armed_; }

  void arm(timer_model& m, nanos now, nanos delay) noexcept {
    pend(m, now, std::max<nanos>(1, saturated(now, delay)));
  }

  // Both return what the library is expected to return.
  bool stop(timer_model& m) noexcept {
    m.is_posted = false;
    m.due = INT64_MAX;
    return std::exchange(m.is_pending, false);
  }

  bool reset(timer_model& m, nanos now, nanos due, nanos period, const timer_run* inside) noexcept {
    if (!may_arm(m, inside)) return false;
    const bool was_pending = m.is_pending;
    if (m.kind != timer_kind::once) m.period = period;
    pend(m, now, std::max<nanos>(1, due));
    return was_pending;
  }

  void begin_await(timer_model& m) noexcept {
    m.has_prevented = stop(m);
    if (m.running == 0) return;
    m.halt = timer_model::halt_state::halted;
    m.is_awaited = true;
  }

  // Returns whether anything was prevented.
  bool end_await(timer_model& m) noexcept {
    m.is_awaited = false;
    return m.has_prevented;
  }

  static nanos deadline(const timer_model& m) noexcept {
    return m.is_pending && m.due < latest ? m.due : INT64_MAX;
  }

  static nanos remaining(const timer_model& m, nanos now) noexcept {
    const nanos due = deadline(m);
    return due == INT64_MAX ? due : std::max<nanos>(0, due - now);
  }

  // While all is at rest at `now`.
  static bool is_overdue(const timer_model& m, nanos now) noexcept {
    const bool may_run = m.kind == timer_kind::once || m.running == 0;
    return m.is_pending && may_run && saturated(m.due, m.slack) <= now;
  }

  // Whether `m`, which starts now, had to wait for `other`: both are due just now, and
  // both stood in the heap until then.
  [[nodiscard]] bool comes_before(const timer_model& other,
                                  const timer_model& m,
                                  nanos now) const noexcept {
    return as_armed_ && stood_until(other, now) && stood_until(m, now) && other.turn < m.turn;
  }

  static bool comes_before_in_line(const timer_model& other, const timer_model& m) noexcept {
    const bool in_one_line = m.is_posted && other.is_posted && m.line != 0 && m.line == other.line;
    return in_one_line && other.is_pending && other.turn < m.turn;
  }

 private:
  friend class timer_run;

  static bool stood_until(const timer_model& m, nanos now) noexcept {
    return m.is_pending && m.due == now && m.since < now && m.slack == 0 && m.running == 0;
  }

  void pend(timer_model& m, nanos now, nanos due) noexcept {
    m.is_pending = true;
    m.is_posted = false;
    m.due = due;
    m.since = now;
    m.slack = m.slack_now;
    m.turn = ++turns_;
  }

  inline bool may_arm(timer_model& m, const timer_run* inside) noexcept;

  const bool as_armed_;
  std::uint64_t turns_ = 0;
  std::uint64_t lifts_ = 0;
};

// A run of a callback, from its start to its end.
class timer_run {
 public:
  timer_run(world& w, timer_model& m, nanos (*now)()) noexcept : world_(w), model_(m), now_(now) {}

  timer_run(const timer_run&) = delete;
  timer_run& operator=(const timer_run&) = delete;

  void begin() {
    timer_model& m = model_;
    const nanos now = now_();
    expect(m.is_pending, "a callback starts that is not pending");
    expect(m.kind == timer_kind::once || m.running == 0, "two runs of every() overlap");
    expect(now >= m.due, "a callback starts before its deadline");
    expect(now <= std::max(saturated(m.due, m.slack), m.since), "a callback starts late");
    const nanos due = m.due;
    world_.stop(m);
    if (m.kind != timer_kind::once) world_.pend(m, now, next(due, now));
    after_ = m.halt == timer_model::halt_state::lifted ? m.lift : 0;
    ++m.running;
    has_begun_ = true;
  }

  ~timer_run() {
    timer_model& m = model_;
    if (!has_begun_) return;
    --m.running;
    const nanos now = now_();
    if (m.is_pending && m.kind == timer_kind::from_end && m.due == INT64_MAX)
      world_.pend(m, now, saturated(now, m.period));
    m.since = std::max(m.since, now);
    if (m.running != 0 || m.halt == timer_model::halt_state::none) return;
    if (m.halt == timer_model::halt_state::halted && world_.stop(m)) m.has_prevented = true;
    m.halt = timer_model::halt_state::none;
  }

 private:
  friend class world;

  // The first instant of the phase that is still to come. from_end: known at the end.
  [[nodiscard]] nanos next(nanos due, nanos now) const noexcept {
    if (model_.kind == timer_kind::from_end) return INT64_MAX;
    while (due <= now)
      due += model_.period;
    return due;
  }

  world& world_;
  timer_model& model_;
  nanos (*now_)();
  bool has_begun_ = false;
  std::uint64_t after_ = 0;  // the lift that it began after
};

inline bool world::may_arm(timer_model& m, const timer_run* inside) noexcept {
  switch (m.halt) {
    case timer_model::halt_state::none:
      return true;
    case timer_model::halt_state::lifted:
      return inside == nullptr || inside->after_ == m.lift;
    case timer_model::halt_state::halted:
      break;
  }
  if (m.is_awaited || inside != nullptr) {
    m.has_prevented = true;
    return false;
  }
  m.lift = ++lifts_;
  m.halt = timer_model::halt_state::lifted;
  return true;
}

}  // namespace fuzz
