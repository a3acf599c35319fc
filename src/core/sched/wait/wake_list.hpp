// wake_list: waiters that were claimed under a lock, and go on once it is released.
//
//   wake_list claimed;
//   { lock;  claimed.claim(w, outcome::value); }
//   claimed.deliver();
//
// Many waits in one queue are ended a few dozen under each hold of its lock:
//
//   for (bool more = true; more;) {
//     wake_list claimed;
//     { lock;  claimed.take(queue, end);  more = !queue.empty(); }
//     claimed.deliver_together();
//   }
//
// No more may queue then: a thread that looks under the lock finds that the end has come.
// Each waiter lies on a stack of its own, long out of the cache. So before take() claims
// the first, it fetches the memory of all that it will claim, and the next round's
// entries (far_list).
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/sched/wait/waiter.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

class wake_list {
 public:
  void add(waiter& claimed) noexcept { claimed_.push_back(claimed); }

  bool empty() const noexcept { return claimed_.empty(); }

  // Claims the wait; true if this call ended it.
  bool claim(open_wait& w, outcome result) noexcept {
    if (!w.claim(result)) return false;
    add(*w.whose);
    return true;
  }

  // Ends the wait, if there is one, with `value`, and empties its place.
  void end(open_wait& w) noexcept {
    if (w.whose != nullptr) claim(w, outcome::value);
    w.whose = nullptr;
  }

  // Takes out up to far_stride entries; `end(entry)` says whether it has claimed the
  // wait. Caller: holds the queue's lock.
  template <class Entry, class End>
  void take(far_list<Entry>& queue, End end) noexcept {
    Entry* taken[far_stride];
    std::size_t n = 0;
    for (; n < far_stride && !queue.empty(); ++n) {
      taken[n] = queue.pop_front();
      prefetch_entry(taken[n]->ahead);
      prefetch(taken[n]->whose);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (end(*taken[i])) add(*taken[i]->whose);
    }
  }

  // Makes the owners go on, in order. Caller: holds no lock, and touches no waiter later.
  void deliver(run_order when = run_order::in_order) noexcept {
    while (waiter* const w = claimed_.pop_front())
      w->deliver(when);
  }

  // The same for many: readies the fibers of this thread's runtime together, and the
  // first of them runs next.
  void deliver_together() noexcept;

 private:
  // Fetches the queued_waiter at the start of an entry, which may lie in two lines.
  static void prefetch_entry(const void* entry) noexcept {
    if (entry == nullptr) return;
    const auto* const start = static_cast<const char*>(entry);
    __builtin_prefetch(start, 1);
    __builtin_prefetch(start + sizeof(queued_waiter) - 1, 1);
  }

  // Fetches what claiming and readying touch: of a fiber, the control block from
  // park_state on.
  static void prefetch(const waiter* w) noexcept {
    __builtin_prefetch(w, 1);
    __builtin_prefetch(reinterpret_cast<const char*>(w) - cache_line, 1);
    __builtin_prefetch(reinterpret_cast<const char*>(w) + cache_line, 1);
  }

  chain<waiter, &waiter::next_woken> claimed_;
};

}  // namespace VIGIL_DETAIL
