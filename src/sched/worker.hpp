// worker: a thread that runs fibers. Its loop is: pick a fiber, enter it, and
// after the switch back do what the fiber asked for (commit a park, requeue,
// end). Without a fiber it looks around, steals, and sleeps.
//
// If nothing but the next ready fiber is to be seen to, the one that leaves
// hands over to it straight, and what the first asked for is done on the stack
// of the second, as the first thing there: arrived(). Either way it is done off
// the stack of the fiber that asked.
#pragma once

#include "base/atomic.hpp"
#include "base/intrusive_list.hpp"
#include "base/random.hpp"
#include "base/record_pool.hpp"
#include "base/spinlock.hpp"
#include "machine/stack.hpp"
#include "machine/switch.hpp"
#include "sched/fiber/fiber.hpp"
#include "sched/idle.hpp"
#include "sched/run/run_bounds.hpp"
#include "sched/run_queue.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace vigil::inline VIGIL_ABI::detail {

class intake;
class scheduler;
class seeded_order;
class slow_fibers;
class stuck_watch;

// What is done for a fiber that has left, off its stack.
enum class after_switch : std::uint8_t {
  nothing,
  park,
  yield,
  park_timer_fiber,
  timer_fiber_turn,  // the same, but more is due: others have a few turns first
  end,
};

// Written by the worker's thread, summed up by whoever asks.
struct worker_counters {
  own_counter fibers_started;
  own_counter switches;
  own_counter steals;
  own_counter sleeps_begun;
  own_counter sleeps_ended;
  own_counter kernel_waits;
  own_counter wakes_useful;
  own_counter wakes_needless;
};

class worker {
 public:
  worker(scheduler& owner, unsigned index);
  ~worker();
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  // The loop, on the worker's thread, until the scheduler quits.
  void run() noexcept;

  // --- from fibers on this worker
  void leave_to(after_switch what, spinlock* lock = nullptr) noexcept;
  [[noreturn]] void leave_for_ever_to_end() noexcept;
  // On a fiber's stack, first thing after each switch to it.
  static void arrived() noexcept;

  // For draws of the fibers that run here: on virtual time the run's, so that the
  // seed decides.
  random& dice() noexcept { return dice_; }

  // Lets the others go first, if there are any.
  void yield() noexcept;

  // options::slow_fiber: the fiber that runs here begins a new stretch.
  void new_stretch() noexcept {
    if (slow != nullptr) [[unlikely]]
      note_stretch();
  }

  // What std::uncaught_exceptions() says of the fiber that runs here.
  unsigned exceptions_in_flight() const noexcept { return side_->exceptions_in_flight(); }

  // --- from this thread
  // One fiber more is pinned here, the main fiber included, or one less. From the
  // fiber itself, but for the main fiber before it runs.
  void keeps() noexcept;
  void lets_go(fiber& f) noexcept;

  // Goes next on this worker, within the bound of hand-offs; what was next
  // before goes to the tail.
  void push_next(fiber& f) noexcept;
  void push_back(fiber& f) noexcept;
  void push_overflow(fiber& f) noexcept;
  bool has_one() const noexcept;  // no more than one fiber waits here

  // Caller: has lain down. The last look (I2 of idle.hpp).
  bool sees_work() noexcept;

  // --- from any thread
  void push_pinned(fiber& f) noexcept VIGIL_EXCLUDES(inbox_lock_);

  // seq_cst: I2 of idle.hpp.
  bool has_ready() const noexcept { return !queue_.empty() || next_.load() != nullptr; }

  bool has_pinned() const noexcept { return inbox_filled_.load(); }

  // --- from run(), while the worker does not run
  // The thread of each worker but the first.
  template <class F>
  void start_thread(F body) {
    thread_ = std::thread(std::move(body));
  }

  // False if it has none.
  bool join_thread() noexcept;
  // It counts as looking before its thread does.
  void begin_looking() noexcept;

  scheduler& sched;
  const unsigned index;
  fiber* current = nullptr;
  worker_counters counters;
  stack_cache stacks;
  record_pool::cache wait_records;      // of the timer layer
  record_pool::cache callback_records;  // of the timer layer
  detail::intake* intake = nullptr;     // of the timer layer
  sleeper place;
  // A fiber armed an earlier deadline while it parked and woke nobody for it:
  // before user code runs here, a sleeper must cover it.
  bool cover_before_user_code = false;
  slow_fibers* slow = nullptr;   // options::slow_fiber
  stuck_watch* stuck = nullptr;  // options::stuck_limit
  run_bounds ran;                // since when `current` has run
  std::uint64_t next_id = 0;
  std::uint64_t last_id = 0;

 private:
  // --- choosing

  fiber* pick() noexcept;
  fiber* pick_directly(after_switch what) noexcept;
  fiber* pick_with_care(after_switch what) noexcept;
  fiber* pick_in_order() noexcept;
  fiber* pick_by_seed() noexcept;
  void push_seeded(fiber& f) noexcept;
  fiber* pop_pinned() noexcept VIGIL_EXCLUDES(inbox_lock_);
  fiber* take_next() noexcept;
  bool leaves_to_others() noexcept;
  fiber* take_short_turn() noexcept;
  void note_pinned_wait(after_switch what) noexcept;
  bool turns_are_short(const fiber& f) const noexcept;
  fiber* steal() noexcept;
  fiber* steal_from(worker& victim) noexcept;
  bool nothing_else() noexcept;
  bool timers_due() noexcept;
  bool has_come(nanos next) noexcept;
  void look_for_io(nanos now) noexcept;

  // --- running

  void enter(fiber& f) noexcept;
  void about_to_run(fiber& f) noexcept;
  void begin_trial(const fiber& f) noexcept;
  void end_trial(fiber& f) noexcept;
  void care() noexcept;

  bool is_kept() const noexcept { return pinned_ != 0; }

  void note_stretch() noexcept;
  void leave_for(fiber* next, after_switch what, spinlock* lock) noexcept;
  void after(fiber& f) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS;

  // --- idling (worker_idle.cpp)

  void stop_looking() noexcept;
  bool nap() noexcept;  // false: it is time to rest
  void rest() noexcept;
  bool lie_down() noexcept;
  void stay_awake() noexcept;
  void sleep() noexcept;
  bool must_end_lock_waits(std::uint64_t& none_left) noexcept;
  bool ends_lock_waits(std::uint64_t got_up) noexcept;
  bool leaves_what_it_sees() noexcept;
  nanos not_before() noexcept;
  void woke_in_vain() noexcept;

  thread_side* side_ = nullptr;  // on the stack of run()
  fiber* left_ = nullptr;        // handed over, and waits for arrived()
  after_switch after_ = after_switch::nothing;
  spinlock* after_lock_ = nullptr;

  const bool lone_;                              // the only worker: nobody steals from it
  const std::unique_ptr<seeded_order> by_seed_;  // on virtual time
  bool with_care_;  // virtual time, pinned fibers or a trial: see pick_directly()
  run_queue queue_;
  atomic<fiber*> next_{nullptr};  // taken by exchange, by thieves too

  spinlock inbox_lock_{lock_rank::inbox};
  fiber_chain inbox_ VIGIL_GUARDED_BY(inbox_lock_);
  atomic<bool> inbox_filled_{false};

  unsigned pinned_ = 0;  // fibers that are pinned here; a lone worker's do not count
  unsigned open_ = 0;    // of them, those whose last wait had no deadline
  // How the one fiber that is pinned here waits, if it does.
  enum class pinned_wait : std::uint8_t { bounded, open, join };
  pinned_wait pinned_wait_ = pinned_wait::bounded;
  bool takes_all_ = false;  // nobody else would take what is left to others
  bool first_turn_ = false;
  nanos trial_began_ = 0;
  std::uint32_t until_trial_ = 1;

  std::uint32_t turn_ = 0;
  std::uint32_t handoffs_ = 0;
  bool looking_ = false;
  bool just_woke_ = false;

  // The clock is read every few switches: see timers_due().
  std::uint32_t until_clock_ = 1;
  std::uint32_t since_clock_ = 0;
  nanos last_clock_ = 0;
  std::uint32_t short_sleeps_ = 0;   // in a row
  std::uint32_t woken_in_vain_ = 0;  // of late
  std::uint32_t naps_ = 0;           // in a row

  random random_;  // for what the seed of a run on virtual time does not decide
  random& dice_;
  std::thread thread_;
};

using worker_list = std::vector<std::unique_ptr<worker>>;

// The worker whose thread this is, nullptr on other threads. One accessor that
// is never inlined and returns a value: compilers keep the address of a
// thread-local across a switch, after which the fiber may be on another
// thread. Never keep the result across a park.
VIGIL_FOR_IO worker* current_worker() noexcept;

// In a forked child: its thread is no worker any more, so that every call finds
// itself outside a runtime and says why.
void forget_worker_after_fork() noexcept;

// The fiber that is running; nullptr outside one.
VIGIL_FOR_IO fiber* current_fiber() noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
