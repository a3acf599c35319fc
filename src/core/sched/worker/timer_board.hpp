// timer_board: what the timer layer and the workers tell each other.
//
// The timer layer writes the next deadline, how many callbacks are due, and where the
// timer fiber is parked; workers read them. A deadline that has been lowered, and new
// callbacks, are covered by a worker: IA2 and IA3 of idle.hpp.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/idle/idle.hpp"
#include "core/sched/worker/outside_work.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

class timer_board {
 public:
  struct neighbours {
    const clock_source& clock;
    idle_workers& idle;
    const outside_work& outside;
    const std::size_t workers;  // how many there are
  };

  explicit timer_board(const neighbours& of) noexcept : of_(of) {}

  // Never later than the earliest pending deadline (HK1 of heap_keeper.hpp). seq_cst: IA1
  // of idle.hpp.
  alignas(cache_line) atomic<nanos> next_deadline{never};
  // Due callbacks that wait for a runner. seq_cst: IA1 of idle.hpp.
  atomic<std::size_t> callbacks_waiting{0};
  // The timer fiber, while it is parked. The thread that exchanges it runs it.
  atomic<fiber*> parked_timer_fiber{nullptr};

  // Takes the timer fiber to enter it; nullptr if it is not parked.
  fiber* take_timer_fiber() noexcept {
    // ordering: a hint that spares the exchange; the exchange decides.
    if (parked_timer_fiber.load(order::relaxed) == nullptr) return nullptr;
    return parked_timer_fiber.exchange(nullptr);
  }

  // --- for the timer layer
  // Called when callbacks_waiting has grown: wakes a worker if need be.
  void callbacks_added() noexcept { of_.idle.wake_one(); }

  // The same, by the timer fiber: they are left, as what any event readies
  // (worker::share).
  void callbacks_came_due() noexcept;

  // Called when next_deadline has been lowered. `parking`: the calling fiber parks right
  // afterwards, so its worker looks.
  void deadline_lowered(nanos deadline, bool parking) noexcept;

  // Called when something has gone that may have hidden a deadlock: has the workers look,
  // if none of them would otherwise. Any thread.
  void look_again_at_rest() noexcept;

  // --- for workers, before user code
  // If workers sleep and no other one looks, sees to it that one of them, or the
  // overseer, attends to next_deadline, and to the watch if I/O is awaited.
  void cover() noexcept;
  // The same, if a deadline was lowered by a fiber that was to park. Caller: a fiber or a
  // worker of this runtime.
  void cover_owed() noexcept;

 private:
  const neighbours of_;
};

}  // namespace VIGIL_DETAIL
