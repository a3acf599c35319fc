// signal_hub: signals in one runtime, from the handler to the watchers.
//
// The handler sets a bit and wakes every worker that may sleep. A worker takes the bits
// at its next turn and hands them to the run (run_end::take_signals), which gives each to
// the watchers. Bit 0 stands for runtime::request_stop(). A signal that comes twice
// before it is taken counts as one.
//
// The danger. While there is a watcher, no deadlock is reported. So when the last
// watcher goes, it may uncover a deadlock, which nobody sees if all workers sleep. And a
// watcher of a plain thread may go while the run ends, and the runtime with it.
//
// The rule. A thread that takes the last watcher out has the workers look. It is a
// visitor meanwhile, from before the watcher is out: until then the end of the run
// waits for it (dismiss_watchers).
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/fiber/visitors.hpp"
#include "core/sched/wait/note.hpp"
#include "core/sched/worker/worker.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

class timer_board;
class watch_slot;

// A receiver of signals (notify_signals). receive() runs on a worker's stack: it only
// marks and readies.
struct signal_watcher {
  std::uint64_t signals = 0;  // a bit for each
  void (*receive)(int signal, void* argument) noexcept = nullptr;
  // Called when the run ends, and the watcher is taken out. False: its owner is taking
  // it out at this moment. Null if the owner always does so before.
  bool (*dismiss)(void* argument) noexcept = nullptr;
  void* argument = nullptr;
  list_hook<signal_watcher> hook;
};

class signal_hub {
 public:
  signal_hub(const watch_slot& where,
             const worker_list& workers,
             timer_board& board,
             visitors& inside) noexcept
      : where_(where), workers_(workers), board_(board), visitors_(inside) {}

  void arrived(int signal) noexcept;  // async-signal-safe

  // --- bit 0
  void note_stop() noexcept { pending_.fetch_or(1); }

  bool stop_is_noted() const noexcept { return (pending_.load() & 1) != 0; }

  // Called at the end of a run: drops the signals that came for it, and keeps a stop if
  // `but_stop`.
  void forget(bool but_stop) noexcept { pending_.fetch_and(std::uint64_t{but_stop ? 1u : 0u}); }

  // --- for workers
  // ordering: a hint. take() reads the bits again; a bit that is not seen now is seen at
  // the next turn, and the handler wakes sleepers.
  std::uint64_t hint() const noexcept { return pending_.load(order::relaxed); }

  bool any() const noexcept { return pending_.load() != 0; }  // seq_cst: IA1 of idle.hpp

  std::uint64_t take() noexcept { return pending_.exchange(0); }

  void deliver(int signal) noexcept VIGIL_EXCLUDES(lock_);

  // --- watchers
  // Called before the signals are caught, so that the watcher hears of the first.
  void add(signal_watcher& w) noexcept VIGIL_EXCLUDES(lock_);
  void remove(signal_watcher& w) noexcept VIGIL_EXCLUDES(lock_);  // any thread
  void dismiss_watchers() noexcept VIGIL_EXCLUDES(lock_);

  bool is_watched() const noexcept { return watched_.load() != 0; }

 private:
  using watcher_list = list<signal_watcher, &signal_watcher::hook>;

  const watch_slot& where_;
  const worker_list& workers_;
  timer_board& board_;
  visitors& visitors_;

  // A bit for each signal that came. Read at each switch: nothing beside it is written
  // often.
  alignas(cache_line) atomic<std::uint64_t> pending_{0};
  atomic<unsigned> watched_{0};
  spinlock lock_{lock_rank::shutdown};
  watcher_list watchers_ VIGIL_GUARDED_BY(lock_);
};

}  // namespace VIGIL_DETAIL
