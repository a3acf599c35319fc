// Numbers of callers: of the one that runs a once's function, and of a lock's holder.
#include "core/base/atomic.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sched/worker/worker.hpp"
#include "core/sync/holder_word.hpp"

#include <vigil/detail/sync_core.hpp>

#include <atomic>
#include <cstdint>

namespace VIGIL_DETAIL {

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

// A fiber's number and not its address: it may end without an unlock, and then another
// fiber may have its control block. The lowest bit tells the numbers of threads apart.
std::uint64_t caller_id() noexcept {
  const fiber* const f = current_fiber();
  return f != nullptr ? holder_word::of(f->sched->number(), f->identity.id) : thread_id() << 1 | 1;
}

constinit std::atomic<std::uint32_t> locks_are_watched{0};

void note_holder(std::atomic<std::uint64_t>& holder) noexcept {
  // ordering: a setting.
  if ((locks_are_watched.load(order::relaxed) & lock_watch::notes_holders) == 0) return;
  // ordering: only for those who look inside; nothing hangs on it.
  holder.store(caller_id(), std::memory_order_relaxed);
}

}  // namespace VIGIL_DETAIL
