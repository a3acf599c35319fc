// deadlock_finder: finds out that nothing can ever happen again, and ends the run then.
// There is one for each runtime; they look at all runtimes together, by the rule in
// deadlock.cpp.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

class run_end;
class scheduler;
class wake_list;

class deadlock_finder {
 public:
  deadlock_finder(scheduler& of, run_end& end) noexcept : sched_(of), end_(end) {}

  // Called when a run begins and ends.
  void join() noexcept;
  void leave() noexcept;

  // Caller: the last worker to lie down, once it has.
  void look() noexcept;

  // Claims the waits for locks that are open.
  void claim_lock_waits(wake_list& claimed) noexcept;

  list_hook<deadlock_finder> among_all;  // guarded by deadlock.cpp's lock

 private:
  bool looks_stuck(std::uint64_t asleep) const noexcept;
  bool is_fatal(bool alone) const noexcept;
  bool waits_for_request() const noexcept;
  bool hears_threads() const noexcept;
  static void look_at_all() noexcept;
  static void report(bool alone) noexcept;

  scheduler& sched_;
  run_end& end_;
  atomic<bool> warned_{false};     // a deadlock was reported in this run
  std::uint64_t seen_asleep_ = 0;  // guarded by deadlock.cpp's lock
};

}  // namespace VIGIL_DETAIL
