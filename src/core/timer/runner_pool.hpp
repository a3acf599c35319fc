// runner_pool: the fibers that run the callbacks of after_func, every and post.
//
// If callbacks are queued, a worker with a free turn takes a runner from the pool and
// enters it. The runner goes on with the next callback while there are any, within a
// bound. A runner whose callback parks keeps its stack, and the worker takes another
// runner for the rest. So short callbacks share one runner, and a slow one delays no
// other.
#pragma once

#include "core/base/spinlock.hpp"
#include "core/sched/run_core.hpp"
#include "core/timer/callback_queue.hpp"
#include "core/timer/heap_keeper.hpp"
#include "core/timer/keepalive.hpp"
#include "core/timer/stop_waiters.hpp"
#include "core/timer/timer_owner.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

class runner_pool {
 public:
  // The parts that a runner calls.
  struct neighbours {
    run_core& sched;
    timer_owner& owner;
    keepalive& kept_alive;
    stop_waiters& stops;
    heap_keeper& heap;
    callback_queue& callbacks;
  };

  explicit runner_pool(const neighbours& with) noexcept : with_(with) {}

  // Makes the first runner of a run. Throws as make_fiber does.
  void open();
  void abort_open() noexcept;  // none was entered
  void end() noexcept;

  // Whether callbacks wait and a runner can be had: a worker's last look before it
  // sleeps.
  bool has_work() const noexcept {
    // seq_cst: IA1 of idle.hpp.
    return with_.sched.board.callbacks_waiting.load() != 0 && !lacks_stack() &&
           startable() != callback_queue::those::none;
  }

  // A runner to be entered now. nullptr if no callback is left, or if no runner can be
  // made: then has_work() is false until one comes free, or the room for another.
  fiber* take() noexcept VIGIL_EXCLUDES(lock_);

 private:
  static constexpr std::size_t callbacks_per_turn = 32;
  static constexpr std::size_t most_idle = 32;

  // A worker on which room comes free looks afterwards, and so does the one in take().
  bool lacks_stack() const noexcept {
    const std::size_t bytes = lacking_.load();
    return bytes != 0 && !with_.sched.fibers.has_stack_room(bytes);
  }

  callback_queue::those startable() const noexcept {
    if (!with_.sched.state.stopping()) return callback_queue::those::all;
    return with_.sched.end.handlers_are_awaited() ? callback_queue::those::handlers
                                                  : callback_queue::those::none;
  }

  fiber& make_runner();
  nanos deadline_after(const timer_record& t, nanos deadline) const noexcept;
  void count_from_end(timer_record& t) noexcept;
  // These let through only exceptions that no catch (...) may stop: see call().
  void body();
  void run(fiber& self, timer_record& t, nanos due_until);
  void call(fiber& self, timer_record& t);
  void call_open(fiber& self, timer_record& t);
  void call_reporting(fiber& self, timer_record& t) noexcept;
  void callback_is_over(fiber& self) noexcept;

  const neighbours with_;
  atomic<bool> ending_{false};
  // Not 0: no runner can be had until one comes free, or so much room within
  // max_stack_bytes; SIZE_MAX: the memory itself is lacking.
  atomic<std::size_t> lacking_{0};
  spinlock lock_{lock_rank::runners};
  fiber_chain idle_ VIGIL_GUARDED_BY(lock_);
};

}  // namespace VIGIL_DETAIL
