// timer_fiber: takes due timers out of the heap in bounded batches and does one of three
// things with each, none of which waits or calls user code (TS1 of timer_service.hpp).
#pragma once

#include "core/sched/queue/delay_counters.hpp"
#include "core/timer/callback_queue.hpp"
#include "core/timer/heap_keeper.hpp"
#include "core/timer/timer_owner.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

class timer_fiber {
 public:
  // The parts that it calls.
  struct neighbours {
    scheduler& sched;
    timer_owner& owner;
    heap_keeper& heap;
    callback_queue& callbacks;
  };

  explicit timer_fiber(const neighbours& with) noexcept : with_(with) {}

  // Makes the fiber for a run. Throws as make_fiber does.
  void open();
  void abort_open() noexcept;  // it was never entered
  void end() noexcept;

  void add_stats(runtime_stats& s) const noexcept { late_.add_stats(s.lateness); }

 private:
  // Due timers that fire together.
  struct batch;
  friend struct fire_again;
  static constexpr std::size_t batch_size = 64;
  static constexpr std::size_t batches_per_turn = 8;

  void body() noexcept;
  bool fire_due(nanos now) noexcept;
  void surface(const heap_entry& e, nanos now, batch& b) noexcept;
  bool fire_wait(runtime_timer& t, nanos seen, nanos now, batch& b) noexcept;
  void note_fired(timer_kind kind, nanos late) noexcept;

  const neighbours with_;
  atomic<bool> ending_{false};      // set once no worker can take the fiber
  std::size_t slots_given_up_ = 0;  // passed to the next take_due()
  delay_counters late_;
};

// Lets a send function have its timer fire again, without the room or the wake-up that an
// arming needs: in the slot that its entry has just left, which is still set aside (HK3).
struct fire_again {
  // True if the timer was pending all the same.
  bool at(nanos deadline) noexcept;

  timer_fiber& of;
  runtime_timer& timer;
  timer_fiber::batch& into;
};

}  // namespace VIGIL_DETAIL
