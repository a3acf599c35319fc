// runner_pool: the fibers that run the callbacks of after_func, every and post.
//
// A worker with a free turn takes a runner from the pool and enters it, if callbacks are
// queued. A runner goes on with the next one while there are any, within a bound; one
// whose callback parks keeps its stack, and the worker takes another runner for the
// rest. So short callbacks share one runner, and a slow one delays nobody.
#pragma once

#include "base/spinlock.hpp"
#include "timer/callback_queue.hpp"
#include "timer/heap_keeper.hpp"
#include "timer/keepalive.hpp"
#include "timer/stop_waiters.hpp"
#include "timer/timer_owner.hpp"

#include <cstddef>

namespace vigil::inline VIGIL_ABI::detail {

class runner_pool {
 public:
  // The parts that a runner calls.
  struct neighbours {
    timer_owner& owner;
    keepalive& kept_alive;
    stop_waiters& stops;
    heap_keeper& heap;
    callback_queue& callbacks;
  };

  runner_pool(scheduler& sched, const neighbours& with) noexcept : sched_(sched), with_(with) {}

  // For a run. Throws as make_fiber does.
  void open();
  void abort_open() noexcept;  // none was entered
  void end() noexcept;

  // A worker's last look before it sleeps: callbacks wait, and a runner can be had.
  bool has_work() const noexcept {
    // seq_cst: A1 of idle.hpp.
    return sched_.callbacks_waiting.load() != 0 && !is_wanting_.load() && !sched_.state.stopping();
  }

  // A runner to be entered now: a callback is reserved for it. nullptr: there is none
  // any more; or no runner can be made, and has_work() is false until one comes free.
  fiber* take() noexcept VIGIL_EXCLUDES(lock_);

 private:
  static constexpr std::size_t callbacks_per_turn = 32;
  static constexpr std::size_t idle_kept = 32;

  fiber& make_runner();
  // These throw only what no catch (...) is for: see call().
  void body();
  void run_once(fiber& self, timer_record& t, nanos due_until);
  void run_periodic(fiber& self, timer_record& t, nanos due_until);
  void call(fiber& self, timer_record& t);
  void call_open(fiber& self, timer_record& t);
  void call_reporting(fiber& self, timer_record& t) noexcept;
  void callback_is_over(fiber& self) noexcept;

  scheduler& sched_;
  const neighbours with_;
  atomic<bool> ending_{false};
  atomic<bool> is_wanting_{false};  // no runner can be had; one will come free
  spinlock lock_{lock_rank::runners};
  fiber_chain idle_ VIGIL_GUARDED_BY(lock_);
};

}  // namespace vigil::inline VIGIL_ABI::detail
