// spinlock: a short lock that spins, then yields the processor. It is for sections of a
// few dozen instructions that neither allocate, park, nor call user code.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/lock_rank.hpp"
#include "core/base/thread_annotations.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

class VIGIL_CAPABILITY("spinlock") spinlock {
 public:
  explicit constexpr spinlock(lock_rank rank) noexcept : rank_(rank) {}

  spinlock(const spinlock&) = delete;
  spinlock& operator=(const spinlock&) = delete;

  void lock() noexcept VIGIL_ACQUIRE() {
    take(taken_);
    lock_taken(rank_);
  }

  // Takes the lock beside others of the same rank, in an order that all such callers
  // keep.
  void lock_beside() noexcept VIGIL_ACQUIRE() {
    take(taken_);
    lock_taken_beside(rank_);
  }

  bool try_lock() noexcept VIGIL_TRY_ACQUIRE(true) {
    // Pairs with the release in give(). The load spares the line's owner a
    // failing exchange; ordering: only a hint.
    if (taken_.load(order::relaxed) || taken_.exchange(true, order::acquire)) return false;
    lock_taken(rank_);
    return true;
  }

  // The same on a word alone, for a lock that lies in a public header.
  static void take(atomic<bool>& taken) noexcept {
    // Pairs with the release in give().
    if (taken.exchange(true, order::acquire)) wait_for(taken);
  }

  static void give(atomic<bool>& taken) noexcept {
    // Pairs with the acquires in take(), try_lock() and wait_for().
    taken.store(false, order::release);
  }

  void unlock() noexcept VIGIL_RELEASE() {
    lock_released(rank_);
    give(taken_);
  }

  atomic<bool>& word() noexcept { return taken_; }

  lock_rank rank() const noexcept { return rank_; }

 private:
  // Waits for a word that is taken, and takes it.
  VIGIL_FOR_IO static void wait_for(atomic<bool>& taken) noexcept;

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

}  // namespace VIGIL_DETAIL
