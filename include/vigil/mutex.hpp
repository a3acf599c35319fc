// mutex: one fiber or thread at a time.
//
//   vigil::mutex m;
//   const std::lock_guard lock(m);
//
// sync.hpp has the rules for all locks and counters, and for the ends of their waits.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>  // std::lock_guard, unique_lock, scoped_lock

namespace vigil::inline VIGIL_ABI {

// Mutual exclusion. Meets the standard's TimedMutex requirements.
//
// Fairness: a newcomer may take a free mutex ahead of waiters; but once a waiter has
// waited for a millisecond, or has been overtaken a thousand times, the next unlock
// reserves it for that waiter. Waiters are served in the order in which they came.
// Behaviour: Go's sync.Mutex.
//
// It does not know its owner: any fiber or thread may unlock it, and locking it
// twice waits for ever. Cost: uncontended, two atomic operations on one word.
class mutex {
 public:
  constexpr mutex() noexcept = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  // Throws wrong_place, and `deadlock` (sync.hpp) only; not ended by a stop.
  void lock() { lock_within(detail::no_limit); }

  // At most until ctx is done: then throws `cancelled`, and it is not locked.
  void lock(const context& ctx) { lock_within(detail::cancelled_by(ctx)); }

  [[nodiscard]] bool try_lock() noexcept { return take() || detail::try_lock_slowly(core_); }

  // False if the timeout passes first. Zero or negative: as try_lock.
  template <detail::duration_like D>
  [[nodiscard]] bool try_lock_for(const D& timeout) {
    return lock_within(detail::within(timeout));
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool try_lock_until(const Time& t) {
    return lock_within(detail::until(t));
  }

  // Throws std::logic_error if it is not locked (a std::lock_guard makes that
  // std::terminate).
  void unlock() {
    std::uint32_t seen = detail::mutex_core::locked;
    // Pairs with the acquire in take() and in lock_slowly().
    if (!core_.word.compare_exchange_strong(
            seen, 0, std::memory_order_release, std::memory_order_relaxed)) {
      detail::unlock_slowly(core_);
    }
  }

 private:
  bool lock_within(const detail::wait_limit& limit) {
    return take() || detail::lock_slowly(core_, limit);
  }

  bool take() noexcept {
    std::uint32_t seen = 0;
    // Pairs with the release in unlock() and in unlock_slowly().
    return core_.word.compare_exchange_strong(
        seen, detail::mutex_core::locked, std::memory_order_acquire, std::memory_order_relaxed);
  }

  detail::mutex_core core_;
};

}  // namespace vigil::inline VIGIL_ABI
