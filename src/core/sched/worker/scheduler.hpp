// scheduler: one runtime's workers and fibers, put together from parts.
//
// Each part is a class that owns its state, with its lock and its rule in its own header,
// and is given its neighbours when it is made. The scheduler itself keeps the way of a
// fiber: it is made, queued, handed to a worker, and ends. How a run begins and ends is
// above it (run_seam.hpp, run_core.hpp).
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/random.hpp"
#include "core/sched/fiber/end_listener.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/fiber/fiber_registry.hpp"
#include "core/sched/fiber/run_state.hpp"
#include "core/sched/fiber/scheduler_options.hpp"
#include "core/sched/fiber/visitors.hpp"
#include "core/sched/idle/idle.hpp"
#include "core/sched/idle/watch_slot.hpp"
#include "core/sched/queue/injection_queue.hpp"
#include "core/sched/record/shared_event_log.hpp"
#include "core/sched/wait/timer_seam.hpp"
#include "core/sched/worker/dump_note.hpp"
#include "core/sched/worker/outside_work.hpp"
#include "core/sched/worker/run_seam.hpp"
#include "core/sched/worker/runtime_part.hpp"
#include "core/sched/worker/signal_hub.hpp"
#include "core/sched/worker/standstill.hpp"
#include "core/sched/worker/timer_board.hpp"
#include "core/sched/worker/worker.hpp"

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

namespace VIGIL_DETAIL {

class side_pool;  // of the blocking layer

class scheduler {
 public:
  scheduler(const scheduler&) = delete;
  scheduler& operator=(const scheduler&) = delete;

  // Attaches the timer service. Called before run().
  void attach(timer_seam& seam) noexcept { timers_ = &seam; }

  // --- fibers
  // Throws as new_fiber promises.
  fiber& make_fiber(std::size_t stack_size,
                    std::string_view name,
                    std::size_t body_size,
                    std::size_t body_align,
                    const site& from,
                    fiber_role role);
  void start(fiber& f) noexcept;    // registers it and makes it ready
  void adopt(fiber& f) noexcept;    // registers it only (system fibers)
  void abandon(fiber& f) noexcept;  // made, never started
  void retire(fiber& f) noexcept;   // adopted, never entered
  // Readies several parked fibers: all become findable, then they are left together.
  void ready_all(fiber_chain& chain) noexcept;

  // Makes f run: the scheduler's half of ready(). Nothing else may keep the calling
  // thread inside the runtime: once f is in a queue, it may end the run while the thread
  // is still here.
  void make_runnable(fiber& f, run_order when = run_order::next) noexcept;
  // Queues a fiber for whichever worker comes first.
  void inject(fiber& f) noexcept;
  // Wakes a worker, if need be, for work that is findable now.
  void work_added() noexcept;
  void work_added_here(worker& w) noexcept;  // in the calling worker's own queue

  // The function of f has returned. Called on its own stack, as its last act: a joiner
  // may go on while f leaves. The stack is the run's until ended().
  void finish(fiber& f) noexcept;
  void ended(fiber& f) noexcept;  // off its stack, after its last switch

  // --- timers
  timer_seam& timers() const noexcept { return *timers_; }

  // Where threads that are no workers count themselves while they are in a call.
  visitors& inside() noexcept { return visitors_; }

  // When a busy worker looks for I/O next; never, if the watch knows none. Written
  // by workers, a hint: two may look at once, and each turn counter looks as well.
  alignas(cache_line) atomic<nanos> next_poll{never};

  // --- where idle workers wait
  const watch_slot& watches() const noexcept { return watches_; }

  // Changes the watch, once in the scheduler's life, while workers run and sleep:
  // false if one was given to the constructor or came first.
  VIGIL_FOR_IO bool adopt_watch(std::unique_ptr<watch> w);

  side_pool* own_pool = nullptr;     // the runtime's own; of the blocking layer
  atomic<runtime*> object{nullptr};  // the user's, which does not move

  clock_source clock;

  dump_notes notes;

  std::unique_ptr<shared_event_log> events_outside;  // of threads that are not workers

  const scheduler_options& settings() const noexcept { return settings_; }

  idle_workers& idle() noexcept { return idle_; }

  run_seam& above() noexcept { return run_; }

  worker_list& workers() noexcept { return workers_; }

  const worker_list& workers() const noexcept { return workers_; }

  VIGIL_FOR_IO void add_stats(runtime_stats& s) const noexcept;  // async-signal-safe

  unsigned idle_count() const noexcept { return idle_.asleep(); }

  // Counted by the overseer.
  own_counter overseer_waits;
  own_counter overseer_looks;

  std::uint64_t number() const noexcept { return number_; }

  // Decides on virtual time which of several goes first: fibers, cases of a select,
  // timers due at one instant.
  random& dice() noexcept { return dice_; }

 private:
  worker* own_worker() noexcept;
  void enroll(fiber& f, worker* here) noexcept;
  stack take_stack(std::size_t size, fiber_role role, worker* here);

 protected:
  friend struct debug_layout;

  // Each is a run_core. The watch is the futex one if none is given.
  scheduler(const scheduler_options& settings, std::unique_ptr<watch> w, run_seam& run);
  ~scheduler();

  // Called first by the destructor of the whole: its parts are still there.
  void let_go() noexcept;

  // Before the parts that are given some of them.
  const scheduler_options settings_;
  const std::uint64_t number_;
  run_seam& run_;
  watch_slot watches_;
  idle_workers idle_;
  worker_list workers_;
  visitors visitors_;
  timer_seam* timers_ = nullptr;
  random dice_;

 public:
  // --- the parts. Some are given others that come later and keep only their address.
  timer_board board{
      {.clock = clock, .idle = idle_, .outside = outside, .workers = settings_.workers}};
  run_state state;
  injection_queue injected{lock_rank::injection};
  end_listener ending;
  fiber_registry fibers{settings_, ending};
  outside_work outside{idle_, board, ending, visitors_};
  signal_hub signals{watches_, workers_, board, visitors_};
  standstill at_instant;      // of virtual time
  runtime_parts parts_above;  // kept for the runtime by the layers above
};

// The scheduler whose worker the calling thread is; nullptr elsewhere. A function that
// acts in another runtime is told which: user code that runs meanwhile finds its own.
VIGIL_FOR_IO scheduler* current_scheduler() noexcept;

// Throws wrong_place for a call that needs a runtime, on a thread that has none.
[[noreturn]] void refuse_without_runtime(const std::string& call, const char* advice);
// The calling fiber; throws wrong_place with the name of the call elsewhere.
VIGIL_FOR_IO fiber& require_fiber(const char* call);

}  // namespace VIGIL_DETAIL
