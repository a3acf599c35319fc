#include "core/sched/worker/ready_work.hpp"

#include "core/sched/worker/scheduler.hpp"

#include <algorithm>

namespace VIGIL_DETAIL {
namespace {

template <class Is>
bool any_worker(const scheduler& s, Is is) noexcept {
  const worker_list& all = s.workers();
  return std::any_of(all.begin(), all.end(), [&](const auto& w) { return is(*w); });
}

bool any_in_queues(const scheduler& s) noexcept {
  return any_worker(s, [](const worker& w) { return w.has_ready(); });
}

}  // namespace

bool any_work_in_common(const scheduler& s, std::size_t callbacks) noexcept {
  return !s.injected.empty() || s.signals.any() || s.state.over() ||
         (s.board.callbacks_waiting.load() > callbacks && s.timers().has_callbacks());
}

bool any_work(const scheduler& s, std::size_t callbacks) noexcept {
  return any_work_in_common(s, callbacks) || any_in_queues(s);
}

bool much_work(const scheduler& s) noexcept {
  return any_work_in_common(s) || any_worker(s, [](const worker& w) { return !w.has_one(); });
}

bool any_pinned_work(const scheduler& s) noexcept {
  return any_worker(s, [](const worker& w) { return w.has_pinned(); });
}

bool waits_for_a_worker(const scheduler& s) noexcept {
  return any_pinned_work(s) || waits_for_any_worker(s);
}

bool waits_for_any_worker(const scheduler& s) noexcept {
  if (!s.injected.empty() || s.timers().has_callbacks() || any_in_queues(s)) return true;
  const nanos now = s.clock.now();
  return s.board.next_deadline.load() <= now && s.timers().anything_due(now);
}

}  // namespace VIGIL_DETAIL
