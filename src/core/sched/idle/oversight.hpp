// oversight: how workers call the overseer, and how it goes to rest. The overseer itself
// is in overseer.hpp.
//
// The danger. A worker leaves something, sees that the overseer looks, and goes into user
// code; the overseer, which has seen nothing left, goes to rest. Nobody notices it then.
//
// The rule, all of it sequentially consistent:
//
//   a worker that leaves something           the overseer
//   OV1 publish it: as IA1 of idle.hpp; or   OV3 looks_ = false
//       the watch is free                    OV4 look once more whether something is
//   OV2 look at looks_; if it is false,          left; if so, looks_ = true, and go on
//       wake a sleeper, or set looks_ and    OV5 sleep on the note
//       ring
//
// Either OV1 comes before OV4, and the overseer goes on, or OV3 comes before OV2, and the
// worker sees that it is alone.
//
// The same holds for the rhythm of stuck_watch, with attends_ for looks_, a worker that
// gets up (asleep_ - 1) for OV1, and "whether all workers sleep" for OV4.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/wait/note.hpp"

namespace VIGIL_DETAIL {

class oversight {
 public:
  // --- any thread
  // OV2. Whether the overseer looks at what is left to workers in user code.
  bool looks() const noexcept { return looks_.load(); }

  // Has it look. False if there is no overseer.
  bool call() noexcept {
    if (!present_.load()) return false;
    if (!looks_.exchange(true)) ring();
    return true;
  }

  // Called when a worker has got up.
  void somebody_is_awake() noexcept {
    if (!attends_.load() && !attends_.exchange(true)) ring();
  }

  // Has it look around, at everything.
  void ring() noexcept { note_.wake(); }

  // --- the overseer, and the thread that starts and ends it
  void begin() noexcept {
    looks_.store(false);
    attends_.store(true);
    note_.clear();
    present_.store(true);
  }

  void end() noexcept {
    present_.store(false);
    ring();
  }

  // Forgets earlier rings. The overseer looks around afterwards, and then sleeps.
  void clear() noexcept { note_.clear(); }

  void sleep_until(nanos deadline) noexcept { note_.sleep_until(deadline); }

  bool is_over() const noexcept { return !present_.load(); }

  bool attends() const noexcept { return attends_.load(); }

  // True if it may rest: `nothing_left` says so once more.
  template <class F>
  bool rests(F&& nothing_left) noexcept {
    return takes_back(looks_, nothing_left);
  }

  // The same for the workers that have got up.
  template <class F>
  bool attends_no_more(F&& all_sleep) noexcept {
    return takes_back(attends_, all_sleep);
  }

 private:
  template <class F>
  static bool takes_back(atomic<bool>& flag, F& may) noexcept {
    flag.store(false);       // OV3
    if (may()) return true;  // OV4
    flag.store(true);
    return false;
  }

  // There is an overseer: taken back before the last ring, read after clear(). A caller
  // that finds one that is about to end calls in vain: the run is over by then.
  atomic<bool> present_{false};
  atomic<bool> looks_{false};   // OV2, OV3
  atomic<bool> attends_{true};  // the same, for those who get up
  note note_;
};

}  // namespace VIGIL_DETAIL
