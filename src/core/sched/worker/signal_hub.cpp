#include "core/sched/worker/signal_hub.hpp"

#include "core/base/assert.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/idle/watch_slot.hpp"
#include "core/sched/worker/timer_board.hpp"

#include <thread>

namespace VIGIL_DETAIL {

void signal_hub::arrived(int signal) noexcept {
  // seq_cst: IA1 of idle.hpp; the handler then wakes all that may sleep.
  pending_.fetch_or(std::uint64_t{1} << (signal & 63));
  where_.present().interrupt_in_handler();
  for (const auto& w : workers_)
    w->idling.place().own_note.wake(waker::signal_handler);
}

void signal_hub::deliver(int signal) noexcept {
  const lock_guard guard(lock_);
  for (signal_watcher* w = watchers_.front(); w != nullptr; w = watcher_list::next(*w)) {
    if ((w->signals >> signal & 1) != 0) w->receive(signal, w->argument);
  }
}

void signal_hub::add(signal_watcher& w) noexcept {
  const lock_guard guard(lock_);
  watchers_.push_back(w);
  watched_.fetch_add(1);
}

// The last worker lies down first and then looks at the count; here it is the other way
// round.
void signal_hub::remove(signal_watcher& w) noexcept {
  const visit inside(visitors_);
  bool is_last = false;
  {
    const lock_guard guard(lock_);
    watchers_.remove(w);
    is_last = watched_.fetch_sub(1) == 1;
  }
  // In a program that ends, and in a forked child, no worker is left to look.
  if (is_last && !process_is_exiting()) board_.look_again_at_rest();
}

// Called at the end of a run, when no fiber is left: these watchers belong to plain
// threads.
void signal_hub::dismiss_watchers() noexcept {
  for (;;) {
    {
      const lock_guard guard(lock_);
      signal_watcher* const w = watchers_.front();
      if (w == nullptr) return;
      // Taken out first: after dismiss() it may be gone.
      bool (*const dismiss)(void*) noexcept = w->dismiss;
      if (dismiss == nullptr) fatal("a signal watcher outlives its run");
      watchers_.remove(*w);
      if (dismiss(w->argument)) {
        watched_.fetch_sub(1);
        continue;
      }
      watchers_.push_back(*w);
    }
    std::this_thread::yield();  // its owner waits for the lock
  }
}

}  // namespace VIGIL_DETAIL
