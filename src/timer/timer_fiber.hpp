// timer_fiber: takes due timers out of the heap in bounded batches and does one of three
// things with each, none of which waits or calls user code (S4 of timer_service.hpp).
#pragma once

#include "timer/callback_queue.hpp"
#include "timer/heap_keeper.hpp"
#include "timer/lateness.hpp"
#include "timer/timer_owner.hpp"

#include <cstddef>

namespace vigil::inline VIGIL_ABI::detail {

class timer_fiber {
 public:
  timer_fiber(scheduler& sched,
              timer_owner& owner,
              heap_keeper& heap,
              callback_queue& callbacks) noexcept
      : sched_(sched), owner_(owner), heap_(heap), callbacks_(callbacks) {}

  // For a run. Throws as make_fiber does.
  void open();
  void abort_open() noexcept;  // it was never entered
  void end() noexcept;

  void add_stats(runtime_stats& s) const noexcept { late_.add_stats(s.lateness); }

 private:
  // The due timers of one turn.
  struct batch;
  class fire_again;
  static constexpr std::size_t batch_size = 64;
  static constexpr std::size_t batches_per_turn = 8;

  void body() noexcept;
  bool fire_due(nanos now) noexcept;
  void surface(heap_entry e, nanos now, batch& b) noexcept;
  bool fire_wait(runtime_timer& t, nanos seen, batch& b) noexcept;

  scheduler& sched_;
  timer_owner& owner_;
  heap_keeper& heap_;
  callback_queue& callbacks_;
  atomic<bool> ending_{false};      // once nobody else can take it
  std::size_t slots_given_up_ = 0;  // with the next turn
  lateness late_;
};

}  // namespace vigil::inline VIGIL_ABI::detail
