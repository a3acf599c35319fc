// run_queue: a worker's fibers that are ready, first in, first out.
//
// A ring of fixed size. Only the owner adds, at the tail; the owner and
// thieves take, at the head. head_ and tail_ only grow; the slots between them
// hold fibers.
//
// RQ1 A slot in [head_, tail_) is not overwritten: the owner adds only if
//     tail_ - head_ < capacity, with a head_ that can only have grown since.
// RQ2 The thread that moves head_ from h to h + n by compare-exchange owns the n
//     fibers that it read from the slots before. If head_ has moved meanwhile, the
//     compare-exchange fails and the fibers that were read are thrown away.
//
// The queue of a lone worker has no thieves: nothing in it is ordered, and
// nothing locked.
//
// ordering  tail_ is released by the owner after the slot is written and
//           acquired by thieves before they read it. head_ is released by the
//           thread that takes, after it read the slots, and acquired by the
//           owner before it writes them again.
#pragma once

#include "core/base/atomic.hpp"
#include "core/sched/wait/waiter.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

class run_queue {
 public:
  static constexpr std::uint32_t capacity = 256;

  explicit run_queue(bool lone = false) noexcept : lone_(lone) {}

  // Caller: the owner. False if full.
  bool push(fiber& f) noexcept {
    // Pairs with the releases of head_ in pop() and grab().
    const std::uint32_t head = head_.load(order::acquire);
    // ordering: the owner is the only writer of tail_.
    const std::uint32_t tail = tail_.load(order::relaxed);
    if (tail - head >= capacity) return false;
    // ordering: published by the store of tail_.
    slots_[tail % capacity].store(&f, order::relaxed);
    if (lone_) {
      tail_.store(tail + 1, order::relaxed);  // ordering: nobody else looks
      return true;
    }
    // seq_cst: the owner then looks whether a worker sleeps, while that one
    // publishes its sleep and then looks at this queue.
    tail_.store(tail + 1);
    return true;
  }

  // Caller: the owner.
  fiber* pop() noexcept {
    // Pairs with the releases of head_ by thieves.
    std::uint32_t head = head_.load(order::acquire);
    for (;;) {
      // ordering: the owner is the only writer of tail_.
      if (head == tail_.load(order::relaxed)) return nullptr;
      fiber* const f = slots_[head % capacity].load(order::relaxed);  // ordering: own writes
      if (lone_) {
        head_.store(head + 1, order::relaxed);  // ordering: nobody else looks
        return f;
      }
      // Pairs with the acquire in push().
      if (head_.compare_exchange_weak(head, head + 1, order::acq_rel, order::acquire)) return f;
    }
  }

  // Takes half of the fibers, rounded up, at most `room`, into `into`; returns how
  // many. Any thread.
  std::uint32_t grab(fiber** into, std::uint32_t room) noexcept {
    for (;;) {
      // Pairs with the releases of head_.
      std::uint32_t head = head_.load(order::acquire);
      const std::uint32_t tail = tail_.load(order::acquire);  // Pairs with the store in push()
      std::uint32_t n = tail - head;
      n -= n / 2;
      if (n == 0) return 0;
      if (n > capacity / 2) continue;  // head_ moved between the two loads
      if (n > room) n = room;
      for (std::uint32_t i = 0; i < n; ++i) {
        into[i] = slots_[(head + i) % capacity].load(order::relaxed);  // ordering: RQ2
      }
      // Pairs with the acquire in push().
      if (head_.compare_exchange_strong(head, head + n, order::acq_rel, order::acquire)) return n;
    }
  }

  // The size at some moment, or more by what was taken meanwhile. Any thread.
  std::uint32_t size() const noexcept {
    // seq_cst: the last look of a worker that has published its sleep.
    const std::uint32_t head = head_.load();
    return tail_.load() - head;
  }

  // A true answer was right at the moment tail_ was read: head_ never passes tail_, so
  // an older head_ that equals it is the present one. Any thread.
  bool empty() const noexcept {
    // seq_cst: the last look of a worker that has published its sleep.
    const std::uint32_t head = head_.load();
    return head == tail_.load();
  }

 private:
  alignas(cache_line) atomic<std::uint32_t> head_{0};
  alignas(cache_line) atomic<std::uint32_t> tail_{0};
  const bool lone_;
  atomic<fiber*> slots_[capacity] = {};
};

}  // namespace VIGIL_DETAIL
