// mutex: one fiber or thread at a time.
//
//   vigil::mutex m;
//   const std::lock_guard lock(m);
//
// sync.hpp has the rules for all locks and counters, and for how their waits end.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>  // std::lock_guard, unique_lock, scoped_lock

namespace VIGIL_PUBLIC {

namespace detail {
class part_lock;
}

// mutex: mutual exclusion. Meets the standard's TimedMutex requirements.
//
// Throws wrong_place and `deadlock` from lock(), `cancelled` with a context,
// std::bad_alloc with a time; std::logic_error from unlock() if it is not locked. Thread
// safety: fibers of any runtime and plain threads, in any mix; the constructor is
// constexpr. Lifetime: it may be destroyed when nothing waits in it or holds it, even
// while the call that ended the last wait is still returning. Shutdown: a stop does not
// end a wait for it, since its holder is unwound and unlocks. Behaviour: Go's sync.Mutex.
//
// Fairness: waiters are served in the order in which they came. A newcomer may take a
// free mutex ahead of them; but once a waiter has waited for a millisecond, or has been
// overtaken a thousand times, the next unlock reserves the mutex for it.
//
// Any fiber or thread may unlock it, and a fiber that locks it twice waits for ever. Its
// owner is noted for dumps alone, once inspect::install() was called. Cost: uncontended,
// two atomic operations on one word.
class mutex {
 public:
  constexpr mutex(const site& from = site::current()) noexcept : core_(from) {}

  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  // A stop does not end it. Throws only wrong_place, and `deadlock` (sync.hpp).
  void lock() { lock_within(detail::no_limit); }

  // The same; throws `cancelled`, without the lock, when ctx is done.
  void lock(const context& ctx) { lock_within(detail::cancelled_by(ctx)); }

  [[nodiscard]] bool try_lock() noexcept { return take() || detail::try_lock_slowly(core_); }

  // Returns false if the timeout passes first. If it is zero or negative, does what
  // try_lock does.
  template <detail::duration_argument D>
  [[nodiscard]] bool try_lock_for(const D& timeout) {
    return lock_within(detail::within(timeout));
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool try_lock_until(const Time& t) {
    return lock_within(detail::until(t));
  }

  // Throws std::logic_error if the mutex is not locked (in a std::lock_guard this calls
  // std::terminate).
  void unlock() {
    detail::holder_goes(core_.holder);
    std::uint32_t seen = detail::mutex_core::locked;
    // Pairs with the acquire in take() and in lock_slowly().
    if (--core_.until_due < 0 ||
        !core_.word.compare_exchange_strong(
            seen, 0, std::memory_order_release, std::memory_order_relaxed)) {
      detail::unlock_slowly(core_);
    }
  }

 private:
  friend struct detail::core_access;
  friend class detail::part_lock;

  bool lock_within(const detail::wait_limit& limit) {
    if (take()) [[likely]]
      return true;
    return detail::lock_slowly(core_, limit);
  }

  bool take() noexcept {
    std::uint32_t seen = detail::free_lock_word();
    // Pairs with the release in unlock() and in unlock_slowly().
    return core_.word.compare_exchange_strong(
        seen, detail::mutex_core::locked, std::memory_order_acquire, std::memory_order_relaxed);
  }

  detail::mutex_core core_;
};

namespace detail {

// Holds a mutex as part of a call that does not give its worker away unless it waits.
class part_lock {
 public:
  explicit part_lock(mutex& m) : mutex_(m) {
    if (!m.try_lock()) lock_uncounted(m.core_);
  }

  ~part_lock() { mutex_.unlock(); }

  part_lock(const part_lock&) = delete;
  part_lock& operator=(const part_lock&) = delete;

 private:
  mutex& mutex_;
};

}  // namespace detail

}  // namespace VIGIL_PUBLIC
