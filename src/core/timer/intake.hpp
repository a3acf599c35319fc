// intake: where armed timers wait to be merged into the heap, one for each
// worker and one that plain threads share. So arming takes no lock that two
// workers want, and most timeouts die here, unsorted.
//
// Only the owner adds entries. The timer fiber and workers about to sleep empty it.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/record/event_log.hpp"
#include "core/timer/runtime_timer.hpp"
#include "core/timer/timer_heap.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

// The events that are counted.
enum class timer_event : unsigned { armed, reset, stopped, fired };
inline constexpr std::size_t timer_events = 4;

constexpr event_kind recorded_as(timer_event event) noexcept {
  static_assert(static_cast<int>(event_kind::timer_fired) - 3 ==
                static_cast<int>(event_kind::timer_armed));
  return static_cast<event_kind>(static_cast<unsigned>(event_kind::timer_armed) +
                                 static_cast<unsigned>(event));
}

// The timer fiber says by itself what it fires: so the others are callbacks that run.
constexpr std::uint16_t detail_of(timer_event event) noexcept {
  return event == timer_event::fired ? static_cast<std::uint16_t>(timer_kind::go_func) : 0;
}

class alignas(cache_line) intake {
 public:
  static constexpr std::uint32_t capacity = 256;

  spinlock lock{lock_rank::intake};
  // Changed under the lock; read without it to see whether there is anything to take
  // (sequentially consistent: HK1 of heap_keeper.hpp).
  atomic<std::uint32_t> size{0};
  // How many more entries the heap has set room aside for (HK3). Used by the owner only;
  // in the shared intake, under timer_owner::outside.
  std::uint32_t allowance = 0;
  // Whether armings have a tie, or are written to `log`. Set before the first one.
  bool notes_armings = false;
  heap_entry entries[capacity] VIGIL_GUARDED_BY(lock);

  event_log* log = nullptr;  // of the worker, if it records; none for the shared one

  // Counts an event of the owner's, and records it.
  void note(timer_event event) noexcept {
    count(event).add();
    if (recorder_is_built && log != nullptr) [[unlikely]]
      record(event, 0);
  }

  // Not inlined: it is rare, and arming and stopping are not. Caller: there is a log.
  [[gnu::noinline]] void record(timer_event of, nanos deadline) const noexcept {
    const split_nanos at(deadline);
    log->write(recorded_as(of), at.micros & event::most, at.rest | detail_of(of));
  }

  // Counted by the owner, or under the lock that makes a thread the owner.
  own_counter& count(timer_event event) noexcept {
    return counts_[static_cast<std::size_t>(event)];
  }

  std::uint64_t counted(timer_event event) const noexcept {
    return counts_[static_cast<std::size_t>(event)].get();
  }

 private:
  own_counter counts_[timer_events];
};

}  // namespace VIGIL_DETAIL
