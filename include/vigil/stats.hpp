// The counters of a runtime. Each is a sum over the workers, read without stopping them:
// it is exact when the program is quiet, and a few behind when it is not.
#pragma once

#include <vigil/detail/config.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace VIGIL_PUBLIC {

// delay_histogram: how long something took to happen. Bucket i counts delays that were
// less than 2^i microseconds and are in no earlier bucket; the last bucket counts the
// rest. Throws nothing. Thread safety: a plain value. Cost: 272 bytes; its functions add
// up the buckets.
struct delay_histogram {
  static constexpr std::size_t buckets = 32;
  std::array<std::uint64_t, buckets> count{};
  std::uint64_t sum_nanos = 0;
  std::uint64_t max_nanos = 0;

  VIGIL_API std::uint64_t total() const noexcept;

  // An upper bound, in nanoseconds, for the share q (0 to 1) of all delays; 0 if there
  // were none.
  VIGIL_API std::uint64_t quantile_nanos(double q) const noexcept;
};

// blocking_stats: a snapshot of a side pool (blocking.hpp). `done` counts from its
// creation. Throws nothing. Thread safety: a plain value.
struct blocking_stats {
  std::size_t threads = 0;  // made so far
  std::size_t queued = 0;   // functions that wait for a thread
  std::size_t running = 0;
  std::uint64_t done = 0;                   // functions that returned or threw
  std::chrono::nanoseconds oldest_wait{0};  // of the first function in the queue, in real time
  // The times of each function in `done`, always in real time: from the call until a
  // thread took the function, and from then until it returned or threw.
  delay_histogram queue_time;
  delay_histogram run_time;
};

// runtime_stats: the counters of a runtime, as runtime::stats() and stats() return them;
// each is a sum over the workers, exact when the program is quiet. Throws nothing. Thread
// safety: a plain value.
struct runtime_stats {
  // Fibers. inspect::openmetrics() (vigil/inspect.hpp) has them by state and by reason of
  // their wait, and tasks by state; for that it walks over all of them.
  std::uint64_t fibers_started = 0;
  std::uint64_t fibers_alive = 0;     // user fibers, including the main one
  std::uint64_t fibers_sleeping = 0;  // parked in sleep_for or sleep_until
  std::uint64_t switches = 0;         // times a worker entered a fiber
  std::uint64_t steals = 0;           // fibers taken from another worker's queue
  // From the moment in which a fiber became ready until a worker ran it: one in 64 is
  // timed, in real time; none on virtual time.
  delay_histogram run_queue_delay;
  // For how long the oldest ready fiber has waited for a worker by now, at least: each
  // worker follows one of those that are timed, until it runs. 0 if none of these waits.
  std::chrono::nanoseconds oldest_ready{0};
  // For how long a fiber, or a callback, has run by now without a switch, of the longest,
  // in real time, at least: from the first look at that run, by stats(), a dump, the
  // metrics or the live page. So the first of these that comes upon a run tells 0.
  std::chrono::nanoseconds longest_run{0};

  // Timers; the timer of a fiber's wait counts like any other.
  std::uint64_t timers_armed = 0;  // from idle to pending; includes periodic re-arming
  std::uint64_t timers_reset = 0;  // pending timers that got another deadline
  std::uint64_t timers_fired = 0;
  std::uint64_t timers_stopped = 0;  // prevented from firing
  std::uint64_t timers_pending = 0;  // armed, and neither fired nor stopped
  std::uint64_t heap_entries = 0;    // entries in the heap and the intakes, including dead ones
  std::uint64_t dead_entries = 0;    // entries that will never fire
  delay_histogram lateness;          // from the deadline to the firing

  // Workers, and what they ask of the kernel.
  std::uint64_t workers = 0;
  std::uint64_t workers_asleep = 0;
  // The time for which workers did not sleep for want of work, of all together, in real
  // time; it never goes down. A worker that an Asio handler keeps counts as asleep.
  // inspect::openmetrics() has it of each.
  std::chrono::nanoseconds workers_busy{0};
  std::uint64_t kernel_waits = 0;    // times a worker went to sleep
  std::uint64_t wakes_useful = 0;    // ... and found work when it woke
  std::uint64_t wakes_needless = 0;  // ... and found none
  std::uint64_t wake_calls = 0;      // system calls made to wake a worker
  // The run's overseer: times it went to sleep, and its looks at what is left to workers
  // in user code.
  std::uint64_t overseer_waits = 0;
  std::uint64_t overseer_looks = 0;

  // I/O operations for which a fiber waits; those on memory streams do not count.
  std::uint64_t io_pending = 0;

  // The runtime's own side pool.
  blocking_stats blocking;

  // Memory, for the stacks of the whole process.
  std::uint64_t stacks_in_use = 0;
  std::uint64_t stack_bytes_mapped = 0;
};

}  // namespace VIGIL_PUBLIC
