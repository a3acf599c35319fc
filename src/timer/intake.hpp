// intake: where armed timers wait to be merged into the heap, one for each
// worker and one that plain threads share. So arming takes no lock that two
// workers want, and most timeouts die here, unsorted.
//
// Only the owner adds. The timer fiber, and workers about to sleep, empty it.
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "timer/timer_heap.hpp"

#include <cstdint>

namespace vigil::internal {

// Who counts: the owner of the intake.
struct timer_counters {
  own_counter armed;
  own_counter reset;
  own_counter stopped;
  own_counter fired;
};

class alignas(cache_line) intake {
 public:
  static constexpr std::uint32_t capacity = 256;

  spinlock lock{lock_rank::intake};
  // Changed under the lock; read without it by those who look whether there
  // is anything to take (sequentially consistent, see timer_service.hpp).
  atomic<std::uint32_t> size{0};
  // How many more entries the heap has room set aside for (S3). The owner's
  // alone; of the shared intake, whoever holds its lock.
  std::uint32_t allowance = 0;
  timer_counters counters;
  heap_entry entries[capacity] VIGIL_GUARDED_BY(lock);
};

}  // namespace vigil::internal
