// deadlock_finder: whether nothing can ever happen again in one runtime.
#pragma once

#include "base/atomic.hpp"
#include "base/clock_source.hpp"
#include "base/nanos.hpp"
#include "sched/worker.hpp"

namespace vigil::internal {

class idle_workers;

class deadlock_finder {
 public:
  deadlock_finder(idle_workers& idle,
                  const worker_list& workers,
                  const clock_source& clock,
                  const atomic<nanos>& next_deadline) noexcept
      : idle_(idle), workers_(workers), clock_(clock), next_deadline_(next_deadline) {}

  // It is reported, and the run ends by it.
  bool has_found() const noexcept { return found_.load(); }

  bool has_warned() const noexcept { return warned_.load(); }

  // False if one was reported before.
  bool note_warned() noexcept { return !warned_.exchange(true); }

  void note_found() noexcept { found_.store(true); }

  // A run begins, and ends.
  void forget_found() noexcept { found_.store(false); }

  void forget_warned() noexcept { warned_.store(false); }

  // Something has gone that a deadlock may have been hidden by: the workers look if none of
  // them would otherwise. Any thread.
  void look_again() noexcept;

 private:
  idle_workers& idle_;
  const worker_list& workers_;
  const clock_source& clock_;
  const atomic<nanos>& next_deadline_;

  atomic<bool> found_{false};
  atomic<bool> warned_{false};  // one was reported
};

}  // namespace vigil::internal
