// lock_turns: counts locks as calls of a turn (sched/worker/turn_budget.hpp).
//
// The danger. A lock of a free mutex is a compare-exchange in the caller's code, which
// knows neither the fiber nor its count; and there are ever new mutexes.
//
// The rule. The unlock counts, under the mutex: each 64th leaves it `due`, so that the
// next lock fails in the fast path and spends 64. A new mutex is due as well, but for
// one. Where in its 64 it begins hangs on the thread's count, so many that are locked in
// turn are not due all at once.
//
// While a run on virtual time is under way each lock comes here and spends one, so what
// happened to a mutex before the run decides nothing in it.
#pragma once

#include "core/sched/worker/turn_budget.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

// The calls that a lock spends which finds the word like this.
template <class Core>
int locks_to_count(const Core& m) noexcept {
  if (is_each_lock_watched()) return 1;
  // ordering: a hint. If the mutex is due, another may come first.
  const std::uint32_t seen = m.word.load(std::memory_order_relaxed);
  return (seen & (Core::due | Core::fresh)) == Core::due ? locks_until_due : 1;
}

// The unlocks of a new mutex until it is due, but one: another number each time.
inline int first_locks() noexcept {
  static_assert((locks_until_due & (locks_until_due - 1)) == 0);
  return calls_of_thread() & (locks_until_due - 1);
}

}  // namespace VIGIL_DETAIL
