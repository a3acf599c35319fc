// worker: a thread that runs fibers. Its loop is: pick a fiber, enter it, and after the
// switch back do what the fiber asked for (commit a park, requeue, end). Without a fiber
// it looks around, steals, and sleeps.
//
// If only the next ready fiber needs the worker, the fiber that leaves hands over to it
// directly, and the second one does what the first asked for, on its own stack, as the
// first thing there: arrived(). Either way it is done off the stack of the fiber that
// asked.
//
// Its parts own their state; docs/internals/workers.md lists them. The worker's thread
// alone uses them, except for the functions that say "any thread".
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/random.hpp"
#include "core/base/record_pool.hpp"
#include "core/machine/stack.hpp"
#include "core/machine/switch.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/fiber/fiber_registry.hpp"
#include "core/sched/queue/own_queue.hpp"
#include "core/sched/worker/clock_turns.hpp"
#include "core/sched/worker/idler.hpp"
#include "core/sched/worker/run_bounds.hpp"
#include "core/sched/worker/turn_budget.hpp"
#include "core/sched/worker/worker_counters.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace VIGIL_DETAIL {

class intake;
class scheduler;
class seeded_order;

class worker {
 public:
  worker(scheduler& owner, unsigned index);
  ~worker();
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  // The loop, on the worker's thread, until the scheduler quits.
  void run() noexcept;

  // --- from fibers on this worker
  void park() noexcept;
  // Parks the timer fiber. `more` is due: other fibers have a few turns first.
  void leave_timer_fiber(bool more) noexcept;
  [[noreturn]] void leave_for_ever_to_end() noexcept;
  // Called on a fiber's stack, as the first thing after each switch to it.
  static void arrived() noexcept;

  // For draws of the fibers that run here. On virtual time it is the run's, so that
  // the seed decides.
  random& dice() noexcept { return dice_; }

  // Lets the others go first, if there are any.
  void yield() noexcept;

  // The next yield looks at the clock, though the last look may have been just before.
  void read_clock_next() noexcept { turns_.read_clock_next(); }

  // The fiber that runs here begins a new stretch without a switch (worker_counters).
  void new_stretch() noexcept {
    counters.stretches.add();
    record_stretch(nullptr);
  }

  // The same for a runner, which has another place from here on. The place is written
  // after the count: a reader that finds the same count before and after it has read the
  // place of that stretch, or of the one before while this one is a moment old.
  void new_stretch(const char* file, std::uint32_t line) noexcept {
    counters.stretches.add();
    order_plain_memory();
    current->identity.file = file;
    current->identity.line = line;
    record_stretch(nullptr);
  }

  // The value of std::uncaught_exceptions() for the fiber that runs here.
  unsigned exceptions_in_flight() const noexcept { return side_->exceptions_in_flight(); }

  // --- from this thread
  // Queues a fiber that is ready: it goes next on this worker, within the bound of
  // hand-offs (own_queue), or last. False if it is pinned: no other worker may take it.
  bool push(fiber& f, run_order when) noexcept {
    if (f.pinned != nullptr) [[unlikely]] {
      f.pinned->push_pinned(f);
      return false;
    }
    if (by_seed_ != nullptr) {
      push_seeded(f);
    } else if (when == run_order::next) {
      queue_.push_next(f);
    } else {
      queue_.push_back(f);
    }
    return true;
  }

  // Called when a fiber has become ready here: it is left (idle.hpp), and if it is not
  // alone in the queue, kept for a moment at most.
  void share() noexcept { idling.share(has_one()); }

  // Called between pieces of work without a switch in between: what the worker has kept
  // for that moment is for others now.
  void share_when_due() noexcept;

  // --- from any thread
  void push_pinned(fiber& f) noexcept;

  bool has_ready() const noexcept { return !queue_.empty(); }

  // Says for how long the present stretch has lasted (run_bounds). The clock is read
  // after the count: the stretch has begun by then.
  bool has_run_for(run_bounds::span& out) noexcept {
    const unsigned long stretch = counters.stretch();
    return ran.look(stretch, monotonic_now(), out);
  }

  bool has_one() const noexcept { return queue_.has_one(); }

  bool has_pinned() const noexcept { return !inbox_.empty(); }

  // --- from run(), while the worker does not run
  // The thread of each worker but the first.
  template <class F>
  void start_thread(F body) {
    thread_ = std::thread(std::move(body));
  }

  // False if it has none.
  bool join_thread() noexcept {
    if (!thread_.joinable()) return false;
    thread_.join();
    return true;
  }

  scheduler& sched;
  const unsigned index;
  atomic<int> kernel_thread{0};  // in run(): the thread's id, for a signal
  fiber* current = nullptr;
  worker_counters counters;
  turn_budget budget;
  stack_cache stacks;
  record_pool::cache wait_records;      // of the timer layer
  record_pool::cache callback_records;  // of the timer layer
  intake* own_intake = nullptr;         // of the timer layer
  idler idling;
  // A fiber armed an earlier deadline while it parked, or began to wait for I/O, or the
  // timer fiber has run, and nobody was woken for it: a sleeper must cover the deadline
  // before user code runs here.
  bool cover_before_user_code = false;
  run_bounds ran;  // of the present stretch
  number_block fiber_numbers;

 private:
  // --- choosing

  fiber* pick() noexcept;
  fiber* look_at_clock() noexcept;
  fiber* pick_directly() noexcept;
  fiber* pick_in_order() noexcept;
  fiber* pick_by_seed() noexcept;
  void push_seeded(fiber& f) noexcept;

  fiber* pick_pinned() noexcept;
  fiber* steal() noexcept;
  bool nothing_else() noexcept;

  // --- running

  void enter(fiber& f) noexcept;
  void about_to_run(fiber& f) noexcept;
  void stop_looking() noexcept;

  // Tells the flight recorder, if it is on, that `current` runs now, or none, since
  // `left` has left.
  void record_stretch(const fiber* left) noexcept {
    if (counters.log.is_on()) [[unlikely]]
      write_stretch(left);
  }

  void write_stretch(const fiber* left) noexcept;

  void leave_for(fiber* next, left_by how) noexcept;
  void after(fiber& f) noexcept;
  void after_timer_fiber(fiber& f, left_by how) noexcept;

  thread_side* side_ = nullptr;    // on the stack of run()
  fiber* left_ = nullptr;          // handed over, and waits for arrived()
  left_by after_ = left_by::none;  // what is done for a fiber that has left, off its stack

  const bool lone_;                              // the only worker: nobody steals from it
  const std::unique_ptr<seeded_order> by_seed_;  // on virtual time
  random random_;  // for what the seed of a run on virtual time does not decide
  own_queue queue_;
  injection_queue inbox_{lock_rank::inbox};  // those pinned to it
  bool last_was_pinned_ = false;             // the fiber that pick() has returned last
  bool takes_callback_ = false;              // that one is a runner, entered for a callback
  clock_turns turns_;

  random& dice_;
  std::thread thread_;
};

using worker_list = std::vector<std::unique_ptr<worker>>;

// The worker whose thread this is, nullptr on other threads. It is never inlined and
// returns a value: compilers keep the address of a thread-local across a switch, after
// which the fiber may be on another thread. Never keep the result across a park.
VIGIL_FOR_IO worker* current_worker() noexcept;

// Has the calling thread count as another worker, or none, and returns the one before:
// for a worker that leaves its thread to others for a while.
worker* exchange_worker(worker* w) noexcept;

// In a forked child, whose thread stops being a worker: every call finds itself outside
// a runtime and says why.
inline void forget_worker_after_fork() noexcept {
  exchange_worker(nullptr);
}

// The fiber that is running; nullptr outside one.
VIGIL_FOR_IO fiber* current_fiber() noexcept;

}  // namespace VIGIL_DETAIL
