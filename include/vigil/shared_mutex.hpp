// shared_mutex: one writer, or any number of readers.
//
//   vigil::shared_mutex m;
//   const std::shared_lock lock(m);  // with other readers
//
// sync.hpp has the rules for all locks and counters, and for how their waits end.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>         // std::lock_guard, unique_lock, scoped_lock
#include <shared_mutex>  // std::shared_lock

namespace VIGIL_PUBLIC {

// shared_mutex: one writer, or any number of readers. Meets the standard's
// SharedTimedMutex requirements.
//
// Fairness: while a writer waits, no new reader gets in; when a writer leaves, all
// readers that wait by then go before the next writer. So neither starves the other; but
// a fiber that locks it shared twice may wait for ever, as in Go.
//
// Throws what mutex throws, from both kinds of lock. Thread safety: that of mutex.
// Lifetime: that of mutex. Shutdown: that of mutex. Cost: uncontended, two atomic
// operations on one word, which all readers share. Behaviour: Go's sync.RWMutex.
class shared_mutex {
 public:
  constexpr shared_mutex(const site& from = site::current()) noexcept : core_(from) {}

  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;

  void lock() { lock_within(detail::no_limit); }

  // The same; throws `cancelled`, without the lock, when ctx is done.
  void lock(const context& ctx) { lock_within(detail::cancelled_by(ctx)); }

  [[nodiscard]] bool try_lock() noexcept { return take() || detail::try_lock_slowly(core_); }

  template <detail::duration_argument D>
  [[nodiscard]] bool try_lock_for(const D& timeout) {
    return lock_within(detail::within(timeout));
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool try_lock_until(const Time& t) {
    return lock_within(detail::until(t));
  }

  // Throws std::logic_error if no writer holds it.
  void unlock() {
    detail::holder_goes(core_.holder);
    std::uint32_t seen = word::exclusive;
    // Pairs with the acquires in take() and take_shared().
    if (is_due() || !core_.word.compare_exchange_strong(
                        seen, 0, std::memory_order_release, std::memory_order_relaxed)) {
      detail::unlock_slowly(core_);
    }
  }

  void lock_shared() { lock_shared_within(detail::no_limit); }

  void lock_shared(const context& ctx) { lock_shared_within(detail::cancelled_by(ctx)); }

  [[nodiscard]] bool try_lock_shared() noexcept {
    return take_shared() || detail::try_lock_shared_slowly(core_);
  }

  template <detail::duration_argument D>
  [[nodiscard]] bool try_lock_shared_for(const D& timeout) {
    return lock_shared_within(detail::within(timeout));
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool try_lock_shared_until(const Time& t) {
    return lock_shared_within(detail::until(t));
  }

  // Throws std::logic_error if no reader holds it.
  void unlock_shared() {
    std::uint32_t seen = word::one_reader;
    // Pairs with the acquire in take().
    if (is_due() || !core_.word.compare_exchange_strong(
                        seen, 0, std::memory_order_release, std::memory_order_relaxed)) {
      detail::unlock_shared_slowly(core_);
    }
  }

 private:
  friend struct detail::core_access;

  using word = detail::shared_mutex_core;

  bool lock_within(const detail::wait_limit& limit) {
    if (take()) [[likely]]
      return true;
    return detail::lock_slowly(core_, limit);
  }

  bool lock_shared_within(const detail::wait_limit& limit) {
    if (take_shared()) [[likely]]
      return true;
    return detail::lock_shared_slowly(core_, limit);
  }

  // Counts an unlock. True if it is to leave the mutex due.
  bool is_due() noexcept {
    // ordering: a count, which may lose some.
    const int left = core_.until_due.load(std::memory_order_relaxed) - 1;
    core_.until_due.store(left, std::memory_order_relaxed);  // ordering: as above
    return left < 0;
  }

  bool take() noexcept {
    std::uint32_t seen = detail::free_lock_word();
    // Pairs with the releases in unlock() and unlock_shared().
    return core_.word.compare_exchange_strong(
        seen, word::exclusive, std::memory_order_acquire, std::memory_order_relaxed);
  }

  bool take_shared() noexcept {
    // ordering: the load only proposes. While locks are watched nobody comes in here.
    std::uint32_t seen = core_.word.load(std::memory_order_relaxed) | detail::free_lock_word();
    while ((seen & (word::exclusive | word::waiting | word::due | word::fresh)) == 0) {
      const std::uint32_t next = seen + word::one_reader;
      // Pairs with the release in unlock().
      if (core_.word.compare_exchange_weak(
              seen, next, std::memory_order_acquire, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  detail::shared_mutex_core core_;
};

}  // namespace VIGIL_PUBLIC
