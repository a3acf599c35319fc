// own_queue: the ready fibers of one worker, of which thieves may take some.
//
// A slot for the fiber that goes next, and a ring (run_queue) behind it for the
// others, first in, first out. A fiber that another one has readied goes to the slot,
// where it is entered with a warm cache; the one that stood there moves to the ring.
// A full ring gives half of its fibers to the injection queue.
//
// Its functions are for the owner's thread, except those that say any thread.
//
// Invariants
//   - A fiber stands in the slot or in the ring, never in both. The thread whose
//     exchange takes it out of the slot, or that moves run_queue's head, owns it.
//   - At most handoff_bound fibers in a row go through the slot while others wait in
//     the ring, so two fibers that ready each other cannot starve those.
//   - The owner alone adds. Each addition is sequentially consistent, before the look
//     at the sleepers (IA1 of idle.hpp), which the caller sees to.
//
// The queue of a lone worker has no thieves, and nothing in it is ordered.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/queue/injection_queue.hpp"
#include "core/sched/queue/run_queue.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

class own_queue {
 public:
  // `overflow` takes the fibers for which there is no room.
  own_queue(bool lone, injection_queue& overflow) noexcept
      : ring_(lone), lone_(lone), overflow_(overflow) {}

  // f goes next, within the bound of hand-offs.
  void push_next(fiber& f) noexcept {
    fiber* before = nullptr;
    if (lone_) {
      before = next_.load(order::relaxed);  // ordering: nobody else looks
      next_.store(&f, order::relaxed);      // ordering: as above
    } else {
      // Pairs with the exchanges in take_slot() and steal_from(). seq_cst: comes
      // before the look at the sleepers.
      before = next_.exchange(&f);
    }
    if (before != nullptr) push_back(*before);
  }

  void push_back(fiber& f) noexcept {
    if (!ring_.push(f)) make_room(f);
  }

  fiber* pop() noexcept {
    fiber* f = nullptr;
    // ordering: only the owner fills it; a thief may empty it meanwhile.
    if (next_.load(order::relaxed) == nullptr) {
      handoffs_ = 0;
    } else {
      f = take_slot();
    }
    return f != nullptr ? f : ring_.pop();
  }

  // Takes half of the ring of `victim`, another worker's queue, or the fiber in its slot
  // if the ring is empty. Returns the first one and adds the others here; `n` becomes the
  // number that was taken.
  fiber* steal_from(own_queue& victim, std::uint32_t& n) noexcept;

  // ordering: a hint, for a yield that may miss a fiber that comes at this instant.
  bool looks_empty() const noexcept {
    return next_.load(order::relaxed) == nullptr && ring_.empty();
  }

  // --- any thread
  // seq_cst: IS2 of idle.hpp.
  bool empty() const noexcept { return ring_.empty() && next_.load() == nullptr; }

  // Whether at most one fiber waits here. seq_cst: the owner adds first and looks here
  // afterwards (idle.hpp).
  bool has_one() const noexcept { return ring_.size() + (next_.load() != nullptr ? 1 : 0) <= 1; }

 private:
  // How many times in a row a fiber that was readied by another may go before
  // those that queued earlier.
  static constexpr std::uint32_t handoff_bound = 16;

  // Takes the fiber of the slot, unless it is gone or the ring's turn has come. Caller:
  // has seen the slot filled. Not inlined: the common case is an empty slot.
  [[gnu::noinline]] fiber* take_slot() noexcept {
    fiber* f = nullptr;
    if (lone_) {
      f = next_.load(order::relaxed);        // ordering: nobody else looks
      next_.store(nullptr, order::relaxed);  // ordering: as above
    } else {
      // Pairs with the exchange in push_next() and in steal_from().
      f = next_.exchange(nullptr, order::acq_rel);
    }
    if (f == nullptr) return nullptr;
    if (++handoffs_ <= handoff_bound || ring_.empty()) return f;
    handoffs_ = 0;
    push_back(*f);
    return nullptr;
  }

  void make_room(fiber& f) noexcept;

  run_queue ring_;
  atomic<fiber*> next_{nullptr};  // the slot; taken by exchange, by thieves too
  std::uint32_t handoffs_ = 0;    // in a row; the owner's
  const bool lone_;               // there is no other worker
  injection_queue& overflow_;
};

}  // namespace VIGIL_DETAIL
