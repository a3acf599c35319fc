// ready_work: whether there is anything to do in one runtime, wherever it lies. It owns
// nothing: it looks into each worker's queue, the injection queue, the signals and the
// callbacks, for the last look before sleep (IS2 of idle.hpp), for the deadlock_finder
// and for stuck_watch. All looks are sequentially consistent.
#pragma once

#include "base/atomic.hpp"
#include "base/clock_source.hpp"
#include "sched/worker/worker.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

class injection_queue;
class run_state;
class signal_hub;
class timer_seam;

class ready_work {
 public:
  struct parts {
    const worker_list& workers;
    const injection_queue& injected;
    const signal_hub& signals;
    const run_state& state;
    const clock_source& clock;
    const atomic<nanos>& next_deadline;
    const atomic<std::size_t>& callbacks_waiting;
    timer_seam* const& timers;  // attached before the first run
  };

  explicit ready_work(const parts& from) noexcept : from_(from) {}

  // Whether there is anything for any worker. Inboxes do not count: their owners look.
  // `callbacks`: so many of those that wait are as good as taken.
  bool any(std::size_t callbacks = 0) const noexcept;
  // Whether there is anything in no worker's own queue.
  bool any_in_common(std::size_t callbacks = 0) const noexcept;
  // Whether there is more than one fiber that its own worker takes next.
  bool much() const noexcept;
  // Whether a fiber is ready that only one worker may take.
  bool any_pinned() const noexcept;
  // Whether a fiber or a callback is ready, or a timer due, that no worker has
  // taken yet. Not on virtual time.
  bool waits_for_a_worker() const noexcept;

 private:
  bool any_in_queues() const noexcept;

  const parts from_;
};

}  // namespace VIGIL_DETAIL
