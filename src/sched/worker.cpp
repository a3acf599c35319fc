#include "sched/worker.hpp"

#include "sched/fiber/park.hpp"
#include "sched/report/slow_fiber.hpp"
#include "sched/run/process.hpp"
#include "sched/scheduler.hpp"
#include "sched/seeded_order.hpp"
#include "sched/short_turns.hpp"

#include <algorithm>
#include <memory>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

thread_local worker* this_worker = nullptr;

// std::exit destroys what belongs to the calling thread before what is static.
// So a runtime with static storage hears of an exit on a fiber of its own.
struct exit_watch {
  bool is_registered = true;

  ~exit_watch() {
    if (this_worker != nullptr) process_exits();
  }
};

thread_local exit_watch this_exit_watch;

// How many times in a row a fiber that was readied by another may go before
// those that queued earlier.
constexpr std::uint32_t handoff_bound = 16;

// Every so many turns the injection queue comes before the worker's own.
constexpr std::uint32_t fairness_turns = 61;

}  // namespace

__attribute__((noinline)) worker* current_worker() noexcept {
  asm volatile("");  // keeps calls from being merged
  return this_worker;
}

__attribute__((noinline)) fiber* current_fiber() noexcept {
  asm volatile("");
  return this_worker == nullptr ? nullptr : this_worker->current;
}

__attribute__((noinline)) scheduler* current_scheduler() noexcept {
  asm volatile("");
  return this_worker != nullptr ? &this_worker->sched : nullptr;
}

void forget_worker_after_fork() noexcept {
  this_worker = nullptr;
}

worker::worker(scheduler& owner, unsigned number)
    : sched(owner),
      index(number),
      lone_(owner.settings().workers == 1),
      by_seed_(owner.clock.is_virtual() ? std::make_unique<seeded_order>(owner.virtual_time.dice())
                                        : nullptr),
      with_care_(by_seed_ != nullptr),
      queue_(lone_),
      random_(owner.settings().seed * 0x9e3779b9 + number),
      dice_(by_seed_ != nullptr ? owner.virtual_time.dice() : random_) {}

worker::~worker() = default;

void worker::run() noexcept {
  thread_side side;
  side_ = &side;
  this_worker = this;
  static_cast<void>(this_exit_watch.is_registered);
  for (;;) {
    fiber* f = pick();
    if (f == nullptr && by_seed_ != nullptr) {
      if (sched.state.over()) break;
      if (sched.virtual_time.has_jumped(*this)) f = sched.take_timer_fiber();
      if (f == nullptr) continue;
    }
    if (f == nullptr) {
      if (!looking_) {
        until_clock_ = 1;
        begin_looking();
        f = pick();  // once more, now that others leave it to this worker
      }
      if (f == nullptr && !leaves_to_others()) f = steal();
      if (f == nullptr) {
        if (sched.state.over()) break;
        takes_all_ = false;
        if (!nap()) rest();
        continue;
      }
    }
    takes_all_ = false;
    if (just_woke_) {
      just_woke_ = false;
      counters.wakes_useful.add();
      woken_in_vain_ /= 2;
    }
    naps_ = 0;
    // The timer fiber is no user code: a worker that looks goes on looking.
    if (f->role != fiber_role::timer) {
      if (looking_) {
        stop_looking();
      } else if (cover_before_user_code) {
        cover_before_user_code = false;
        sched.cover();
      }
    }
    enter(*f);
  }
  if (looking_) {
    looking_ = false;
    sched.idle().stop_looking();
  }
  stacks.flush();
  this_worker = nullptr;
  side_ = nullptr;
}

bool worker::join_thread() noexcept {
  if (!thread_.joinable()) return false;
  thread_.join();
  return true;
}

void worker::begin_looking() noexcept {
  looking_ = true;
  sched.idle().start_looking();
}

// --- choosing

// Whether the earliest deadline has come, or the time to look for I/O.
inline bool worker::timers_due() noexcept {
  // Pairs with the seq_cst writes of the timer layer.
  const nanos deadline = sched.next_deadline.load(acquire);
  const nanos next = std::min(deadline, sched.next_poll.load(relaxed));  // ordering: a hint
  if (next == never) return false;
  ++since_clock_;
  if (until_clock_ > 1) {
    --until_clock_;
    return false;
  }
  return has_come(next);
}

// Fibers that run for long between two switches make few turns, so busy workers
// look for I/O by time as well.
void worker::look_for_io(nanos now) noexcept {
  // ordering: a hint; of two workers that come here at once both look.
  if (sched.next_poll.load(relaxed) > now) return;
  sched.next_poll.store(now + poll_interval, relaxed);  // ordering: as above
  if (sched.present_watch().needs_poll()) sched.present_watch().poll();
}

fiber* worker::pick() noexcept {
  if (sched.signals.hint() != 0) sched.end.take_signals();
  if (timers_due()) {
    if (by_seed_ == nullptr) look_for_io(last_clock_);
    // Pairs with the writes that timers_due() reads: it may be time for I/O alone.
    if (by_seed_ != nullptr || sched.next_deadline.load(acquire) <= last_clock_) {
      if (fiber* const f = sched.take_timer_fiber()) return f;
    }
  }
  return by_seed_ != nullptr ? pick_by_seed() : pick_in_order();
}

// On the stack of a fiber that leaves: the next one, if it comes from this
// worker's own queue and nothing else wants the worker first. What is passed
// over here is seen by pick(), after a bounded number of turns.
inline fiber* worker::pick_directly(after_switch what) noexcept {
  // Looked at together: one branch.
  // ordering: hints, as in pick(); a signal is taken a turn later.
  const std::uint64_t others = sched.signals.hint() | sched.callbacks_waiting.load(relaxed);
  // ordering: as above.
  if ((with_care_ | cover_before_user_code | inbox_filled_.load(relaxed) | (others != 0)) ||
      timers_due()) {
    return with_care_ ? pick_with_care(what) : nullptr;
  }
  if ((turn_ + 1) % fairness_turns == 0) return nullptr;
  fiber* f = take_next();
  if (f == nullptr) f = queue_.pop();
  if (f != nullptr) ++turn_;
  return f;
}

// The same if there is something to be careful about: with_care_.
[[gnu::noinline]] fiber* worker::pick_with_care(after_switch what) noexcept {
  if (trial_began_ != 0) end_trial(*current);
  if (by_seed_ != nullptr) return nullptr;
  note_pinned_wait(what);
  // ordering: hints, as in pick_directly().
  const std::uint64_t others = sched.signals.hint() | sched.callbacks_waiting.load(relaxed);
  // ordering: as above.
  if (cover_before_user_code || inbox_filled_.load(relaxed) || others != 0 || timers_due()) {
    return nullptr;
  }
  if ((turn_ + 1) % fairness_turns == 0) return nullptr;
  fiber* f = nullptr;
  if (leaves_to_others()) {
    f = take_short_turn();
  } else {
    f = take_next();
    if (f == nullptr) f = queue_.pop();
  }
  if (f != nullptr) ++turn_;
  return f;
}

fiber* worker::pick_in_order() noexcept {
  ++turn_;
  if (turn_ % fairness_turns == 0) {
    if (sched.present_watch().needs_poll()) sched.present_watch().poll();
    if (!leaves_to_others()) {
      if (fiber* const f = sched.injected.pop()) return f;
    }
  }
  if (leaves_to_others()) {
    fiber* const f = pop_pinned();
    return f != nullptr ? f : take_short_turn();
  }
  // Each source comes first every third turn, so none can be starved by the
  // others, however they refill.
  for (std::uint32_t i = 0; i < 3; ++i) {
    fiber* f = nullptr;
    switch ((turn_ + i) % 3) {
      case 0:
        f = take_next();
        if (f == nullptr) f = queue_.pop();
        if (f == nullptr) f = sched.injected.pop();
        break;
      case 1:
        if (sched.timers().has_callbacks()) f = sched.timers().take_runner();
        break;
      default:
        f = pop_pinned();
        break;
    }
    if (f != nullptr) return f;
  }
  return nullptr;
}

void worker::push_seeded(fiber& f) noexcept {
  if (by_seed_->has_room()) {
    by_seed_->add(f);
    return;
  }
  fiber_chain one;
  one.push_back(f);
  sched.inject(one);
}

fiber* worker::pick_by_seed() noexcept {
  const auto fill = [this](auto next) {
    while (by_seed_->has_room()) {
      fiber* const f = next();
      if (f == nullptr) return;
      by_seed_->add(*f);
    }
  };
  fill([this] { return sched.injected.pop(); });
  fill([this] { return pop_pinned(); });
  return by_seed_->draw(sched.timers());
}

fiber* worker::take_next() noexcept {
  // ordering: only the owner fills it; a thief may empty it meanwhile.
  if (next_.load(relaxed) == nullptr) {
    handoffs_ = 0;
    return nullptr;
  }
  fiber* f = nullptr;
  if (lone_) {
    f = next_.load(relaxed);        // ordering: nobody else looks
    next_.store(nullptr, relaxed);  // ordering: as above
  } else {
    // Pairs with the exchange in push_next() and in steal_from().
    f = next_.exchange(nullptr, acq_rel);
  }
  if (f == nullptr) return nullptr;
  if (++handoffs_ <= handoff_bound || queue_.empty()) return f;
  handoffs_ = 0;
  push_back(*f);
  return nullptr;
}

// --- beside a pinned fiber (docs/decisions/0014)

// A fiber that is pinned here may become ready at any moment, and nobody else can
// run it: so while another worker is idle, the rest is for that one.
inline bool worker::leaves_to_others() noexcept {
  return is_kept() && !takes_all_ && sched.idle().others_rest(looking_);
}

void worker::keeps() noexcept {
  if (lone_) return;
  ++pinned_;
  pinned_wait_ = pinned_wait::bounded;
  care();
}

void worker::lets_go(fiber& f) noexcept {
  if (lone_) return;
  --pinned_;
  if (std::exchange(f.waits_open, false)) --open_;
  pinned_wait_ = pinned_wait::bounded;  // which of them the last wait was of is not known
  care();
}

void worker::care() noexcept {
  with_care_ = by_seed_ != nullptr || pinned_ != 0 || trial_began_ != 0;
}

// The fiber that leaves, if it is pinned: until when it is away.
void worker::note_pinned_wait(after_switch what) noexcept {
  fiber& self = *current;
  if (self.pinned == nullptr) return;
  const bool waits_timed = std::exchange(self.waits_timed, false);
  // ordering: its own words.
  const wait_reason why = self.reason.load(relaxed);
  if (what != after_switch::park || self.waits_cancellable || waits_timed ||
      self.waiting_until.load(relaxed) != never) {  // ordering: as above
    pinned_wait_ = pinned_wait::bounded;
  } else {
    pinned_wait_ = why == wait_reason::join ? pinned_wait::join : pinned_wait::open;
  }
  const bool is_open = pinned_wait_ != pinned_wait::bounded;
  if (is_open == self.waits_open) return;
  self.waits_open = is_open;
  open_ += is_open ? 1u : ~0u;
}

// The exception: the one pinned fiber waits without a deadline, and the next fiber's
// turns have been short, or those of its kind if it is new.
fiber* worker::take_short_turn() noexcept {
  if (pinned_ != 1 || pinned_wait_ == pinned_wait::bounded) return nullptr;
  fiber* f = take_next();
  // More than one is what several workers share, unless all of them are joined.
  if (f == nullptr && (pinned_wait_ == pinned_wait::join || has_one())) f = queue_.pop();
  if (f == nullptr) return nullptr;
  constexpr std::uint32_t between_trials = 16;
  if (turns_are_short(*f)) {
    // Drawn: of fibers that take turns a counter would meet always the same.
    if (until_trial_ > 1) {
      --until_trial_;
    } else {
      until_trial_ = 1 + random_.below(2 * between_trials);
      begin_trial(*f);
    }
    return f;
  }
  if (f->role == fiber_role::user) f->on_trial = true;
  push_back(*f);
  sched.work_added();
  return nullptr;
}

bool worker::turns_are_short(const fiber& f) const noexcept {
  if (f.role != fiber_role::user) return false;
  if (f.short_turns >= short_turns::enough) return true;
  return !f.has_run && sched.first_turns.are_short(f.table);
}

void worker::begin_trial(const fiber& f) noexcept {
  first_turn_ = !f.has_run;
  trial_began_ = monotonic_now();
  care();
}

void worker::end_trial(fiber& f) noexcept {
  const bool is_short = monotonic_now() - trial_began_ < short_turns::limit;
  f.on_trial = false;
  trial_began_ = 0;
  care();
  if (!is_short) {
    f.short_turns = 0;
  } else if (f.short_turns < short_turns::enough) {
    ++f.short_turns;
  }
  if (first_turn_) sched.first_turns.add(f.table, is_short);
}

fiber* worker::pop_pinned() noexcept {
  // Pairs with the store in push_pinned(); a stale `false` is mended by the
  // last look before sleep, which reads it sequentially consistent.
  if (!inbox_filled_.load(acquire)) return nullptr;
  const lock_guard guard(inbox_lock_);
  fiber* const f = inbox_.pop_front();
  if (inbox_.empty()) inbox_filled_.store(false);
  return f;
}

fiber* worker::steal() noexcept {
  auto& all = sched.workers();
  const auto n = static_cast<unsigned>(all.size());
  if (n < 2) return nullptr;
  const unsigned start = random_.below(n);
  for (unsigned i = 0; i < n; ++i) {
    worker& victim = *all[(start + i) % n];
    if (&victim == this) continue;
    if (fiber* const f = steal_from(victim)) return f;
  }
  return nullptr;
}

fiber* worker::steal_from(worker& victim) noexcept {
  fiber* taken[run_queue::capacity / 2];
  const std::uint32_t n = victim.queue_.grab(taken, run_queue::capacity / 2);
  if (n == 0) {
    // What its owner will enter next. The owner most likely does so within a
    // microsecond, with a warm cache: wait a moment before taking it away.
    // ordering: a hint; the exchange below decides.
    fiber* const before = victim.next_.load(relaxed);
    if (before == nullptr) return nullptr;
    for (int i = 0; i < 40; ++i) {
      cpu_pause();
      if (victim.next_.load(relaxed) != before) return nullptr;  // ordering: a hint
    }
    // Pairs with the exchange in push_next().
    fiber* const f = victim.next_.exchange(nullptr, acq_rel);
    if (f != nullptr) counters.steals.add();
    return f;
  }
  counters.steals.add(n);
  for (std::uint32_t i = 1; i < n; ++i)
    push_back(*taken[i]);
  return taken[0];
}

void worker::push_next(fiber& f) noexcept {
  if (by_seed_ != nullptr) {
    push_seeded(f);
    return;
  }
  fiber* before = nullptr;
  if (lone_) {
    before = next_.load(relaxed);  // ordering: nobody else looks
    next_.store(&f, relaxed);      // ordering: as above
  } else {
    // Pairs with the exchanges in take_next() and steal_from(). seq_cst: comes
    // before the look at the sleepers.
    before = next_.exchange(&f);
  }
  if (before != nullptr) push_back(*before);
}

void worker::push_back(fiber& f) noexcept {
  if (by_seed_ != nullptr) {
    push_seeded(f);
    return;
  }
  if (!queue_.push(f)) push_overflow(f);
}

// Full: half of it moves to the injection queue, with the new one behind. Not
// inlined: its kilobyte would lie on the stack of each fiber that makes another
// one run.
[[gnu::noinline]] void worker::push_overflow(fiber& f) noexcept {
  fiber* moved[run_queue::capacity / 2];
  const std::uint32_t n = queue_.grab(moved, run_queue::capacity / 2);
  fiber_chain overflow;
  for (std::uint32_t i = 0; i < n; ++i)
    overflow.push_back(*moved[i]);
  overflow.push_back(f);
  sched.inject(overflow);
}

// seq_cst: half of the naps of idle.hpp, for the owner that adds as for the
// worker that settles down.
bool worker::has_one() const noexcept {
  return queue_.size() + (next_.load() != nullptr ? 1 : 0) <= 1;
}

void worker::push_pinned(fiber& f) noexcept {
  {
    const lock_guard guard(inbox_lock_);
    inbox_.push_back(f);
    inbox_filled_.store(true);  // seq_cst: A1 of idle.hpp
  }
  sched.idle().wake(place);
}

bool worker::nothing_else() noexcept {
  if (by_seed_ != nullptr) {
    return by_seed_->empty() && !sched.timers().has_callbacks() && sched.injected.empty() &&
           !inbox_filled_.load() && !timers_due() && !sched.signals.any();
  }
  // ordering: a yield that misses what came this instant loses one turn.
  return next_.load(relaxed) == nullptr && queue_.empty() && !inbox_filled_.load(relaxed) &&
         sched.injected.looks_empty() && !sched.timers().has_callbacks() &&
         sched.signals.hint() == 0 && !timers_due();
}

// Reading the clock costs as much as a switch, so between quick switches it is
// read about once a microsecond, and at each switch when fibers run longer than
// that; a worker that looks for work, and virtual time, read it each time.
bool worker::has_come(nanos next) noexcept {
  if (by_seed_ != nullptr) return next <= sched.clock.now();
  const nanos now = monotonic_now();
  constexpr nanos interval = 1000;
  const nanos each = std::max<nanos>(1, (now - last_clock_) / since_clock_);
  until_clock_ =
      looking_ ? 1 : static_cast<std::uint32_t>(std::clamp<nanos>(interval / each, 1, 16));
  since_clock_ = 0;
  last_clock_ = now;
  if (next > now) return false;
  until_clock_ = 1;  // a yield asks first, the worker right after: both must hear yes
  return true;
}

// --- running

void worker::about_to_run(fiber& f) noexcept {
  counters.switches.add();  // first: who finds the fiber here finds its count, too
  current = &f;
  // ordering: the fiber is owned by this worker now; both words were handed
  // over through the queue or the exchange that found it.
  f.park_state.store(park_word::running, relaxed);
  f.state.store(fiber_state::running, relaxed);  // ordering: as above
  new_stretch();
}

void worker::note_stretch() noexcept {
  if (current != nullptr) {
    slow->begins(index, *current);
  } else {
    slow->ends(index);
  }
}

void worker::enter(fiber& f) noexcept {
  about_to_run(f);
  if (f.on_trial) [[unlikely]]
    begin_trial(f);
  detail::enter(*side_, f.side);
  fiber& last = *std::exchange(current, nullptr);
  new_stretch();
  after(last);
}

void worker::leave_to(after_switch what, spinlock* lock) noexcept {
  leave_for(what == after_switch::park ? pick_directly(what) : nullptr, what, lock);
}

void worker::yield() noexcept {
  fiber* const next = pick_directly(after_switch::yield);
  if (next == nullptr && nothing_else()) {
    // I/O has its turn although one fiber alone yields for ever.
    if (!sched.present_watch().needs_poll() || ++turn_ % fairness_turns != fairness_turns - 1) {
      new_stretch();
      return;
    }
  }
  leave_for(next, after_switch::yield, nullptr);
}

// For `next`, or for the worker to look for one.
inline void worker::leave_for(fiber* next, after_switch what, spinlock* lock) noexcept {
  fiber& self = *current;
  after_ = what;
  after_lock_ = lock;
  if (next == nullptr) {
    leave(self.side);
  } else {
    left_ = &self;
    about_to_run(*next);
    if (next->on_trial) [[unlikely]]
      begin_trial(*next);
    hand_over(*side_, self.side, next->side);
  }
  arrived();
}

void worker::leave_for_ever_to_end() noexcept {
  fiber& self = *current;
  after_ = after_switch::end;
  fiber* const next = pick_directly(after_switch::end);
  if (next == nullptr) leave_for_ever(self.side);
  left_ = &self;
  about_to_run(*next);
  if (next->on_trial) [[unlikely]]
    begin_trial(*next);
  hand_over_for_ever(*side_, self.side, next->side);
}

void worker::arrived() noexcept {
  worker& here = *current_worker();
  fiber* const before = std::exchange(here.left_, nullptr);
  if (before == nullptr) return;
  // What is done for the other one may make system calls; errno is this one's.
  const int error_number = here.side_->error_number();
  here.after(*before);
  here.side_->set_error_number(error_number);
}

// What the fiber asked for, now that it is off its stack.
void worker::after(fiber& f) noexcept {
  spinlock* const lock = after_lock_;
  after_lock_ = nullptr;
  const after_switch what = std::exchange(after_, after_switch::nothing);
  switch (what) {
    case after_switch::nothing:
      break;
    case after_switch::park: {
      // ordering: the dump's field; and P1 publishes it.
      f.state.store(fiber_state::parked, relaxed);
      auto expected = park_word::running;
      // P1. Pairs with the exchange in ready().
      const bool parked =
          f.park_state.compare_exchange_strong(expected, park_word::parked, acq_rel, acquire);
      if (lock != nullptr) lock->unlock();  // P2; if parked, f may be gone by now
      if (!parked) sched.make_runnable(f);
      break;
    }
    case after_switch::yield:
      f.state.store(fiber_state::runnable, relaxed);  // ordering: the dump's field
      if (by_seed_ != nullptr) {
        by_seed_->add_yielded(f);
      } else if (f.pinned != nullptr) {
        push_pinned(f);
      } else {
        push_back(f);
        if (!lone_) sched.work_added();  // another worker may take it meanwhile
      }
      break;
    case after_switch::park_timer_fiber:
    case after_switch::timer_fiber_turn:
      f.state.store(fiber_state::parked, relaxed);  // ordering: the dump's field
      // Pairs with the exchange in take_timer_fiber(). A worker that finds it
      // missing goes on with other work: this one looks again right after.
      sched.parked_timer_fiber.store(&f, release);
      // A deadline that came meanwhile is seen by timers_due() at the next
      // turn of this very worker, or after a few if this was a long burst.
      until_clock_ =
          what == after_switch::timer_fiber_turn && !looking_ && by_seed_ == nullptr ? 16 : 1;
      cover_before_user_code = true;  // S2 of heap_keeper.hpp
      break;
    case after_switch::end:
      sched.ended(f);
      break;
  }
}

}  // namespace vigil::inline VIGIL_ABI::detail
