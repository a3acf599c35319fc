// Callbacks, channels and sleeps on wall and boot time as a model: what each clock reads,
// each one's deadline on its clock, and, for a callback, its runs and the wait for their
// end. Multiples of a ticker's period are found by counting.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace fuzz {

// The readings that are expected of the clocks.
struct model_clocks {
  nanos shift[2] = {0, 0};  // wall, boot
  nanos changed = 0;        // when they last were

  [[nodiscard]] nanos read(bool on_boot) const { return saturated(now(), shift[on_boot]); }
};

inline model_clocks* clocks = nullptr;  // of the input that runs

struct clock_model {
  bool on_boot = false;
  nanos due = no_deadline;  // on its clock
  nanos since = 0;          // of that deadline, on the runtime's clock

  [[nodiscard]] bool is_pending() const { return due != no_deadline; }

  [[nodiscard]] nanos time() const { return clocks->read(on_boot); }

  [[nodiscard]] bool is_due() const { return is_pending() && due <= time(); }

  // Caller: it is due. Whether it has become due only now.
  [[nodiscard]] bool is_due_since_now() const {
    return due == time() || since == now() || clocks->changed == now();
  }

  void set(nanos deadline) {
    due = std::min(deadline, latest);
    since = now();
  }

  bool stop() { return std::exchange(due, no_deadline) != no_deadline; }

  [[nodiscard]] nanos shown() const { return due >= latest ? no_deadline : due; }
};

// Multiples of a period, found by counting from the one that is known to be near.
inline nanos last_multiple(nanos time, nanos period) {
  nanos m = time / period * period;
  while (m > time)
    m -= period;
  return m;
}

struct clock_channel_model : clock_model {
  nanos period = 0;
  std::uint64_t missed = 0;
  std::size_t waiters = 0;
  std::vector<nanos> handed;  // to waiters that have not run since

  [[nodiscard]] nanos next() const { return last_multiple(time(), period) + period; }

  [[nodiscard]] bool is_stepped_back() const {
    return period != 0 && is_pending() && due - time() > period;
  }

  // A ticker that was stepped back ticks at the next full period.
  void look() {
    if (is_stepped_back()) due = next();
  }

  nanos take() {
    expect(is_due(), "a value comes before its time");
    if (period == 0) return std::exchange(due, no_deadline);
    const nanos last = last_multiple(time(), period);
    for (nanos m = due; m < last; m += period)
      ++missed;
    set(next());
    return last;
  }

  [[nodiscard]] nanos deadline() const { return is_stepped_back() ? next() : shown(); }
};

class clock_callback_run;

struct clock_callback_model : clock_model {
  bool has_handle = true;
  bool has_captures = true;  // told by their destructor
  int running = 0;
  int runs = 0;
  bool is_awaited = false;  // until its run has ended, or the wait
  bool has_prevented = false;

  // A wait halts it until its run ends. If that gives up, an arming by others lifts the
  // halt, though not for the runs from before.
  enum class halt_state : std::uint8_t { none, halted, lifted };
  halt_state halt = halt_state::none;
  std::uint64_t lift = 0;

  // `inside`: if it is one of its own runs that arms it.
  inline bool may_arm(const clock_callback_run* inside);
};

// A run of a callback, from its start to its end.
class clock_callback_run {
 public:
  explicit clock_callback_run(clock_callback_model& m) : model_(m) {
    expect(m.is_due(), "a callback starts before its time, or after a stop");
    expect(m.is_due_since_now(), "a callback starts late");
    m.stop();
    ++m.running;
    if (m.halt == clock_callback_model::halt_state::lifted) after_ = m.lift;
  }

  clock_callback_run(const clock_callback_run&) = delete;
  clock_callback_run& operator=(const clock_callback_run&) = delete;

  ~clock_callback_run() {
    if (--model_.running != 0) return;
    model_.is_awaited = false;
    model_.halt = clock_callback_model::halt_state::none;
  }

 private:
  friend clock_callback_model;

  clock_callback_model& model_;
  std::uint64_t after_ = 0;  // the lift that it began after
};

inline bool clock_callback_model::may_arm(const clock_callback_run* inside) {
  if (halt == halt_state::none) return true;
  if (halt == halt_state::lifted) return inside == nullptr || inside->after_ == lift;
  if (is_awaited || inside != nullptr) {
    has_prevented = true;
    return false;
  }
  ++lift;
  halt = halt_state::lifted;
  return true;
}

}  // namespace fuzz
