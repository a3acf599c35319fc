// Counters of one runtime. Each is a sum over the workers, read without
// stopping them: exact when the program is quiet, a few behind when it is not.
#pragma once

#include <vigil/detail/config.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace vigil::inline VIGIL_ABI {

// How late timers fired. Bucket i counts those less than 2^i microseconds late
// and not in an earlier bucket; the last one counts the rest.
struct lateness_histogram {
  static constexpr std::size_t buckets = 32;
  std::array<std::uint64_t, buckets> count{};
  std::uint64_t max_nanos = 0;

  // An upper bound in nanoseconds of the share q (0 to 1) of all firings; 0 if
  // there were none.
  VIGIL_API std::uint64_t quantile_nanos(double q) const noexcept;
};

// The state of a side pool (blocking.hpp) at one instant; `done` counts since it
// was made.
struct blocking_stats {
  std::size_t threads = 0;  // made so far
  std::size_t queued = 0;   // functions that wait for a thread
  std::size_t running = 0;
  std::uint64_t done = 0;                   // returned or thrown
  std::chrono::nanoseconds oldest_wait{0};  // of the first one in the queue, real time
};

struct runtime_stats {
  // Fibers.
  std::uint64_t fibers_started = 0;
  std::uint64_t fibers_alive = 0;     // user fibers, the main one included
  std::uint64_t fibers_sleeping = 0;  // parked in sleep_for or sleep_until
  std::uint64_t switches = 0;         // times a worker entered a fiber
  std::uint64_t steals = 0;           // fibers taken from another worker's queue

  // Timers; a fiber's own wait timer counts like any other.
  std::uint64_t timers_armed = 0;  // from idle to pending, and periodic re-arming
  std::uint64_t timers_reset = 0;  // a pending one given another deadline
  std::uint64_t timers_fired = 0;
  std::uint64_t timers_stopped = 0;  // prevented from firing
  std::uint64_t timers_pending = 0;  // armed, neither fired nor stopped
  std::uint64_t heap_entries = 0;    // in the heap and the intakes, dead ones included
  std::uint64_t dead_entries = 0;    // of which nothing will come
  lateness_histogram lateness;

  // The kernel.
  std::uint64_t kernel_waits = 0;    // times a worker went to sleep
  std::uint64_t wakes_useful = 0;    // ... and found something to do when it woke
  std::uint64_t wakes_needless = 0;  // ... and did not
  std::uint64_t wake_calls = 0;      // system calls made to wake a worker

  // The runtime's own side pool.
  blocking_stats blocking;

  // Memory, of the whole process's stacks.
  std::uint64_t stacks_in_use = 0;
  std::uint64_t stack_bytes_mapped = 0;
};

}  // namespace vigil::inline VIGIL_ABI
