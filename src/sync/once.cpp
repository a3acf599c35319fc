// once: idle -> running -> done, or back to idle if the function has thrown; then the
// first waiter that goes on runs its own.
#include "sched/worker.hpp"
#include "sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

#include <stdexcept>

namespace vigil::inline VIGIL_ABI::detail {

namespace {

// Returns the id of a plain thread: a value, since it may be asked for across waits.
[[gnu::noinline]] std::uint64_t thread_id() noexcept {
  static atomic<std::uint64_t> last{0};
  thread_local std::uint64_t mine = 0;
  // ordering: the ids only have to differ.
  if (mine == 0) mine = last.fetch_add(1, order::relaxed) + 1;
  return mine;
}

}  // namespace

// Ids of fibers and of threads overlap: the lowest bit tells them apart.
std::uint64_t caller_id() noexcept {
  const fiber* const f = current_fiber();
  return f != nullptr ? reinterpret_cast<std::uintptr_t>(f) << 1 : thread_id() << 1 | 1;
}

constinit std::atomic<bool> holders_are_noted{false};

void note_holder(std::atomic<std::uint64_t>& holder) noexcept {
  const fiber* const f = current_fiber();
  // ordering: only for those who look inside; nothing hangs on it.
  holder.store(f != nullptr ? f->identity.id << 1 : thread_id() << 1 | 1,
               std::memory_order_relaxed);
}

bool begin_once(once_core& o, const wait_limit& limit) {
  // Keeps the context over all rounds, and releases it without the guard.
  caller self(limit);
  queue_guard guard(o.queue);
  for (;;) {
    switch (o.state.load(order::relaxed)) {  // ordering: changed under the guard
      case once_core::done:
        return false;
      case once_core::idle:
        o.state.store(once_core::running, order::relaxed);  // ordering: as above
        o.runner = caller_id();
        return true;
      default:
        break;
    }
    if (o.runner == caller_id()) {
      throw std::logic_error(
          "vigil::once::call: the function that it runs has called it again, which would wait for "
          "itself for ever; let the function not use what it makes");
    }
    before_waiting(self, "once::call", guard);
    queued_wait own;
    wait_in(detail::all_of(o.queue), own, self, wait_reason::once, guard, changes_nothing);
    guard.lock();
  }
}

void end_once(once_core& o, bool done) noexcept {
  wake_list claimed;
  {
    const queue_guard guard(o.queue);
    o.runner = 0;
    // Pairs with the acquire in is_done().
    o.state.store(done ? once_core::done : once_core::idle, order::release);
    detail::all_of(o.queue).claim_all(claimed);
  }
  claimed.deliver();
}

}  // namespace vigil::inline VIGIL_ABI::detail
