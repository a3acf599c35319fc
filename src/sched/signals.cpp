// Signals, from the handler to those who watch them. The handler sets a bit and
// wakes everybody who may sleep; a worker takes the bits at its next turn. Bit
// 0 is no signal but scheduler::request_stop().
#include "sched/process.hpp"
#include "sched/scheduler.hpp"

#include <thread>

namespace vigil::internal {
namespace {

// A signal of stop_on ends the grace if the end has begun so long ago, whoever began
// it. Earlier it means the same end: a process group gets what its leader relays as
// well, and a terminal that goes away sends more than one.
constexpr nanos grace_kept = 200'000'000;

}  // namespace

void scheduler::signal_arrived(int signal) noexcept {
  // seq_cst: A1 of idle.hpp; the handler then wakes all who may sleep.
  signals_.fetch_or(std::uint64_t{1} << (signal & 63));
  wake_for_signal(waker::signal_handler);
}

void scheduler::wake_for_signal(waker who) noexcept {
  watch& present = present_watch();
  if (who == waker::thread) {
    present.interrupt();
  } else {
    present.interrupt_in_handler();
  }
  for (auto& w : workers_)
    w->place.note.wake(who);
}

void scheduler::take_signals() noexcept {
  const std::uint64_t bits = signals_.exchange(0);
  if ((bits & 1) != 0) begin_end();
  for (int signal = 1; signal < 64; ++signal) {
    if ((bits >> signal & 1) == 0) continue;
    bool stops = false;
    for (const int s : settings_.stop_on)
      stops = stops || s == signal;
    if (stops) {
      const nanos since = end_since_.load();
      begin_end();
      if (since != 0 && clock.now() - since >= grace_kept) end_grace();
    }
    deliver_signal(signal);
  }
}

void scheduler::deliver_signal(int signal) noexcept {
  const lock_guard guard(signal_lock_);
  for (signal_watcher* w = signal_watchers_.front(); w != nullptr;
       w = list<signal_watcher, &signal_watcher::hook>::next(*w)) {
    if ((w->signals >> signal & 1) != 0) w->receive(signal, w->argument);
  }
}

void scheduler::add_signal_watcher(signal_watcher& w) {
  {
    // First, so that it hears of the first signal that is caught.
    const lock_guard guard(signal_lock_);
    signal_watchers_.push_back(w);
    watched_signals_.fetch_add(1);
  }
  try {
    process_watch_signals(*this, w.signals);
  } catch (...) {
    remove_signal_watcher(w);
    throw;
  }
}

// At the end of a run, when no fiber is left: those of plain threads.
void scheduler::dismiss_signal_watchers() noexcept {
  for (;;) {
    {
      const lock_guard guard(signal_lock_);
      signal_watcher* const w = signal_watchers_.front();
      if (w == nullptr) return;
      // Taken out first: after dismiss() it may be gone.
      bool (*const dismiss)(void*) noexcept = w->dismiss;
      if (dismiss == nullptr) fatal("a signal watcher outlives its run");
      signal_watchers_.remove(*w);
      if (dismiss(w->argument)) {
        watched_signals_.fetch_sub(1);
        continue;
      }
      signal_watchers_.push_back(*w);
    }
    std::this_thread::yield();  // its owner waits for the lock
  }
}

// Any thread. While there is a watcher no deadlock is reported: once the last has gone a
// worker looks, if all of them rest. The last of them lies down first, and looks at the
// count then; here it is the other way round. All sequentially consistent, so one sees the
// other. As soon as the watcher is out the run may end, and the runtime go.
void scheduler::remove_signal_watcher(signal_watcher& w) noexcept {
  const visit inside(visitors_);
  bool is_last = false;
  {
    const lock_guard guard(signal_lock_);
    signal_watchers_.remove(w);
    is_last = watched_signals_.fetch_sub(1) == 1;
  }
  if (is_last && idle_.asleep() == workers_.size()) idle_.wake_all();
}

}  // namespace vigil::internal
