#include "core/base/clock_source.hpp"
#include "core/base/words.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace VIGIL_DETAIL {
namespace {

constexpr nanos look_again_after = 20'000'000;

// Words share a few queues. A thread that is about to sleep compares the word under
// the queue's lock; one that has changed the word takes the lock before it
// notifies. So the change is seen, or the sleeper is in the queue.
struct queue {
  std::mutex lock;
  std::condition_variable changed;
};

// Never destroyed: threads may still sleep at the program's end.
std::array<queue, 64>& queues() noexcept {
  static auto& made = *new std::array<queue, 64>;
  return made;
}

queue& queue_of(const futex_word& word) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(&word);
  return queues()[(address / sizeof word ^ address / cache_line) % queues().size()];
}

atomic<bool> looks_by_itself{false};

}  // namespace

void portable_words::wait(futex_word& word, std::uint32_t expected, nanos deadline) noexcept {
  queue& q = queue_of(word);
  std::unique_lock guard(q.lock);
  if (word.load() != expected) return;
  if (looks_by_itself.load()) deadline = std::min(deadline, monotonic_now() + look_again_after);
  if (deadline == never) {
    q.changed.wait(guard);
  } else {
    // steady_clock counts the nanoseconds of CLOCK_MONOTONIC.
    using time_point = std::chrono::steady_clock::time_point;
    q.changed.wait_until(guard, time_point(std::chrono::nanoseconds(deadline)));
  }
}

void portable_words::wake_one(futex_word& word, waker origin) noexcept {
  if (origin == waker::signal_handler) return;
  queue& q = queue_of(word);
  { const std::lock_guard guard(q.lock); }
  q.changed.notify_all();  // any of them may be the one
}

void portable_words::signals_may_come() noexcept {
  if (looks_by_itself.exchange(true)) return;
  // Threads that already sleep without a deadline wake, and sleep again with one.
  for (queue& q : queues()) {
    {
      const std::lock_guard guard(q.lock);
    }
    q.changed.notify_all();
  }
}

}  // namespace VIGIL_DETAIL
