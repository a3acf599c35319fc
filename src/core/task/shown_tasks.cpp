#include "core/task/shown_tasks.hpp"

#include "core/sched/report/dump.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/task/task_service.hpp"

#include <algorithm>

namespace VIGIL_DETAIL {

// Copies a few under each hold of the lock: the reader of the text may be slow.
void task_service::write(dump_writer& out) noexcept {
  constexpr std::size_t at_once = 8;  // on the stack of a signal's handler, perhaps
  constexpr std::size_t most = 1024;
  fiber_view some[at_once];
  shown_tasks tasks{.to = some, .room = at_once};
  for (; tasks.first < most; tasks.first += at_once) {
    if (!copy(tasks)) {
      out.text("tasks: another thread is changing their list; try again\n");
      return;
    }
    const auto no_object = [] {};
    for (std::size_t i = 0; i < tasks.copied; ++i)
      dump_fiber(out, some[i], no_object);
    if (tasks.copied < at_once) return;
  }
  if (tasks.all > most) out.text("... and ").number(tasks.all - most).text(" more tasks\n");
}

bool task_service::copy(shown_tasks& out) noexcept {
  if (out.of_caller == shown_tasks::patience::waits) {
    lock_.lock();
  } else if (!lock_.try_lock()) {
    return false;
  }
  copy_some(out);
  lock_.unlock();
  const nanos now = sched_.clock.now();
  for (std::size_t i = 0; i < out.copied; ++i)
    out.to[i].now = now;
  return true;
}

void task_service::copy_some(shown_tasks& out) const noexcept {
  out.copied = 0;
  out.all = all_.size();
  out.runnable = ready_.size();
  // One that has ended, and is inside a runner still, is in no list.
  out.running = std::min<std::size_t>(inside_, out.all - out.runnable);
  std::size_t skipped = 0;
  for (const task_core* t = all_.front(); t != nullptr && out.copied < out.room;
       t = task_list::next(*t)) {
    if (skipped++ < out.first) continue;
    t->show(out.to[out.copied++]);
  }
}

}  // namespace VIGIL_DETAIL
