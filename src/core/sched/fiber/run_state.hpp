// run_state: how far a run has come, for every part that asks. run_end and
// deadlock_finder write it, by the rules that stand there.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/fiber/fiber.hpp"

#include <vigil/error.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

// How far the end has come.
enum class run_phase : std::uint8_t {
  idle,  // not running
  running,
  ending,    // a stop was asked for; the grace period
  stopping,  // waits throw `stopped`
  closed,    // no user fiber is left
  over,      // the main fiber has ended, and with it the workers
};

class run_state {
 public:
  run_phase phase() const noexcept { return phase_.load(); }

  // False if the phase is not `from`.
  bool change_phase(run_phase from, run_phase to) noexcept {
    return phase_.compare_exchange_strong(from, to);
  }

  // The phase only goes forward: a call that comes late changes nothing, and returns
  // false.
  bool advance(run_phase to) noexcept {
    run_phase seen = phase_.load();
    while (seen < to) {
      if (phase_.compare_exchange_weak(seen, to)) return true;
    }
    return false;
  }

  // True once the stopping has begun: every open stoppable wait is claimed as stopped, or
  // will be (RE3 of end.cpp).
  bool stopping() const noexcept { return phase() >= run_phase::stopping; }

  bool must_stop(const fiber& f) const noexcept { return stopping() || f.stop_flag.load(); }

  // A deadlock was reported, and the run ends by it.
  bool deadlocked() const noexcept { return deadlocked_.load(); }

  void note_deadlock() noexcept { deadlocked_.store(true); }

  bool over() const noexcept { return phase() == run_phase::over; }

  // Whether the shutdown caused the exception, in a joined child for example.
  bool is_by_my_end(const cancelled& e) const noexcept {
    return e.is_by_shutdown() && phase() >= run_phase::ending;
  }

  // Whether the exception, which leaves f, ends f as silently as `stopped` does.
  bool ends_silently(const fiber& f, const cancelled& e) const noexcept {
    return is_by_my_end(e) || must_stop(f);
  }

  bool ends_silently(const deadlock&) const noexcept { return deadlocked(); }

  // A run begins: begin(); it has ended: back_to_idle(), which keeps `deadlocked` for
  // run(), which throws it.
  void begin() noexcept { deadlocked_.store(false); }

  void back_to_idle() noexcept { phase_.store(run_phase::idle); }

 private:
  friend struct debug_layout;

  atomic<run_phase> phase_{run_phase::idle};
  atomic<bool> deadlocked_{false};
};

}  // namespace VIGIL_DETAIL
