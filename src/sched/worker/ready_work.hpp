// ready_work: whether there is anything to do in one runtime, wherever it lies. It owns
// nothing: it looks into each worker's queue, the injection queue, the signals, the
// callbacks and whether the run is over, for the last look before sleep (IS2 of
// idle.hpp), for a worker that stops looking, and for those that look from above. All
// looks are sequentially consistent.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

class scheduler;

class ready_work {
 public:
  explicit ready_work(const scheduler& of) noexcept : sched_(of) {}

  // Whether there is anything for any worker. Inboxes do not count: their owners look.
  // `callbacks`: so many of those that wait are as good as taken.
  bool any(std::size_t callbacks = 0) const noexcept;
  // Whether there is anything in no worker's own queue.
  bool any_in_common(std::size_t callbacks = 0) const noexcept;
  // Whether there is more than what a worker takes next from its own queue.
  bool much() const noexcept;
  // Whether a fiber is ready that only one worker may take.
  bool any_pinned() const noexcept;
  // Whether a fiber or a callback is ready, or a timer due, that no worker has
  // taken yet. Not on virtual time.
  bool waits_for_a_worker() const noexcept;

 private:
  bool any_in_queues() const noexcept;

  const scheduler& sched_;
};

}  // namespace VIGIL_DETAIL
