// spinlock: a short lock that spins, then yields the processor. It is for sections of a
// few dozen instructions that neither allocate, park, nor call user code.
#pragma once

#include "base/atomic.hpp"
#include "base/lock_rank.hpp"
#include "base/thread_annotations.hpp"

#include <vigil/detail/config.hpp>

namespace vigil::inline VIGIL_ABI::detail {

class VIGIL_CAPABILITY("spinlock") spinlock {
 public:
  explicit constexpr spinlock(lock_rank rank) noexcept : rank_(rank) {}

  spinlock(const spinlock&) = delete;
  spinlock& operator=(const spinlock&) = delete;

  void lock() noexcept VIGIL_ACQUIRE() {
    // Pairs with the release in unlock().
    if (taken_.exchange(true, order::acquire)) lock_slowly();
    lock_taken(rank_);
  }

  // Takes the lock beside others of the same rank, in an order that all such callers
  // keep.
  void lock_beside() noexcept VIGIL_ACQUIRE() {
    // Pairs with the release in unlock().
    if (taken_.exchange(true, order::acquire)) lock_slowly();
    lock_taken_beside(rank_);
  }

  bool try_lock() noexcept VIGIL_TRY_ACQUIRE(true) {
    // Pairs with the release in unlock(). The load spares the line's owner a
    // failing exchange; ordering: only a hint.
    if (taken_.load(order::relaxed) || taken_.exchange(true, order::acquire)) return false;
    lock_taken(rank_);
    return true;
  }

  // Waits for a word that is taken, and takes it: the slow half of a lock of this kind.
  VIGIL_FOR_IO static void wait_for(atomic<bool>& taken) noexcept;

  void unlock() noexcept VIGIL_RELEASE() {
    lock_released(rank_);
    // Pairs with the acquires in lock() and try_lock().
    taken_.store(false, order::release);
  }

 private:
  void lock_slowly() noexcept { wait_for(taken_); }

  atomic<bool> taken_{false};
  const lock_rank rank_;
};

class VIGIL_SCOPED_CAPABILITY lock_guard {
 public:
  explicit lock_guard(spinlock& lock) noexcept VIGIL_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }

  ~lock_guard() VIGIL_RELEASE() { lock_.unlock(); }

  lock_guard(const lock_guard&) = delete;
  lock_guard& operator=(const lock_guard&) = delete;

 private:
  spinlock& lock_;
};

}  // namespace vigil::inline VIGIL_ABI::detail
