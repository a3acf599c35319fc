#include "core/sched/worker/worker.hpp"

#include "core/machine/process_state.hpp"
#include "core/sched/queue/seeded_order.hpp"
#include "core/sched/worker/ready_work.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <memory>

#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

thread_local worker* this_worker = nullptr;

// std::exit destroys the objects of the calling thread before the static ones. So a
// runtime with static storage hears of an exit on a fiber of its own.
struct exit_watch {
  bool is_registered = true;

  ~exit_watch() {
    if (this_worker != nullptr) process_note_exit();
  }
};

thread_local exit_watch this_exit_watch;

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

__attribute__((noinline)) worker* exchange_worker(worker* w) noexcept {
  asm volatile("");
  if (w != nullptr) w->budget.begin();
  return std::exchange(this_worker, w);
}

worker::worker(scheduler& owner, unsigned number)
    : sched(owner),
      index(number),
      counters(owner.settings().recorder_events.value_or(0), owner.clock),
      budget(owner.settings().turn_budget),
      idling(owner, inbox_, turns_, counters),
      lone_(owner.settings().workers == 1),
      by_seed_(owner.clock.is_virtual() ? std::make_unique<seeded_order>(owner.dice()) : nullptr),
      random_(owner.settings().seed * 0x9e3779b9 + number),
      queue_(lone_, owner.injected),
      turns_(owner.clock,
             owner.board.next_deadline,
             owner.next_poll,
             owner.watches(),
             owner.settings().is_guest),
      dice_(by_seed_ != nullptr ? owner.dice() : random_) {}

worker::~worker() = default;

void worker::run() noexcept {
  thread_side side;
  side_ = &side;
  exchange_worker(this);
  kernel_thread.store(::gettid());
  counters.busy.gets_up();
  static_cast<void>(this_exit_watch.is_registered);
  for (;;) {
    fiber* f = pick();
    if (f == nullptr && by_seed_ != nullptr) {
      if (sched.state.over()) break;
      if (sched.above().clock_has_jumped(idling)) f = sched.board.take_timer_fiber();
      if (f == nullptr) continue;
    }
    if (f == nullptr) {
      if (!idling.is_looking()) {
        turns_.read_clock_next();
        idling.start_looking();
        // Once more, now that others leave it to this worker. If there are none, only
        // time has passed.
        f = lone_ ? look_at_clock() : pick();
      }
      if (f == nullptr) f = steal();
      if (f == nullptr) {
        if (sched.state.over()) break;
        idling.rest();
        continue;
      }
    }
    idling.found_one();
    // The timer fiber is not user code: a worker that looks goes on looking.
    if (f->role != fiber_role::timer) {
      if (idling.is_looking()) {
        stop_looking();
      } else if (cover_before_user_code) {
        cover_before_user_code = false;
        sched.board.cover();
      }
    }
    enter(*f);
  }
  if (idling.is_looking()) idling.stop_looking(0);
  stacks.flush();
  counters.busy.lies_down();
  this_worker = nullptr;
  side_ = nullptr;
}

// Before user code: what this worker owes the others (P7).
void worker::stop_looking() noexcept {
  const bool others_rest = idling.stop_looking(takes_callback_ ? 1 : 0);
  cover_before_user_code = false;
  if (others_rest) sched.board.cover();
}

// --- choosing

fiber* worker::pick() noexcept {
  takes_callback_ = false;
  if (sched.signals.hint() != 0) sched.above().take_signals();
  if (fiber* const f = look_at_clock()) return f;
  return by_seed_ != nullptr ? pick_by_seed() : pick_in_order();
}

// The timer fiber, if a deadline has come.
inline fiber* worker::look_at_clock() noexcept {
  if (!turns_.due(idling.is_looking())) return nullptr;
  if (turns_.shares_now() && much_work(sched)) sched.work_added();
  return turns_.deadline_has_come() ? sched.board.take_timer_fiber() : nullptr;
}

void worker::share_when_due() noexcept {
  if (turns_.is_time_to_share() && much_work(sched)) sched.work_added();
}

// Called on the stack of a fiber that leaves: the next one, if it comes from this
// worker's own queue and nothing else wants the worker first. pick() sees whatever is
// passed over here, after a bounded number of turns.
inline fiber* worker::pick_directly() noexcept {
  if (by_seed_ != nullptr) [[unlikely]] {
    detail::count_work(*this, *current);
    return nullptr;
  }
  // Looked at together: one branch.
  // ordering: hints, as in pick(); a signal is taken a turn later.
  const std::uint64_t others =
      sched.signals.hint() | sched.board.callbacks_waiting.load(order::relaxed);
  if ((cover_before_user_code | !inbox_.looks_empty() | (others != 0)) ||
      turns_.due(idling.is_looking()) || turns_.next_is_for_others()) {
    return nullptr;
  }
  fiber* const f = queue_.pop();
  if (f != nullptr) turns_.begin_own_turn();
  return f;
}

fiber* worker::pick_in_order() noexcept {
  turns_.begin_turn();
  if (turns_.is_for_others()) {
    turns_.poll();
    if (fiber* const f = sched.injected.pop()) return f;
  }
  if (fiber* const f = pick_pinned()) return f;
  // Either source comes first every other turn, so neither can be starved by the other,
  // however it refills.
  const bool callbacks_first = turns_.first_of(2) == 1;
  for (const bool callbacks : {callbacks_first, !callbacks_first}) {
    fiber* f = nullptr;
    if (!callbacks) {
      f = queue_.pop();
      if (f == nullptr) f = sched.injected.pop();
    } else if (sched.timers().has_callbacks()) {
      f = sched.timers().take_runner();
      takes_callback_ = f != nullptr;
    }
    if (f != nullptr) return f;
  }
  return inbox_.pop();
}

// Only this worker can run them, so they come first; but one that is ready again at once
// does not keep all others waiting.
fiber* worker::pick_pinned() noexcept {
  fiber* const f = last_was_pinned_ ? nullptr : inbox_.pop();
  last_was_pinned_ = f != nullptr;
  return f;
}

void worker::push_seeded(fiber& f) noexcept {
  if (!by_seed_->add(f)) sched.inject(f);
}

fiber* worker::pick_by_seed() noexcept {
  by_seed_->take_in(sched.injected, inbox_);
  return by_seed_->draw(sched.timers());
}

fiber* worker::steal() noexcept {
  auto& all = sched.workers();
  const auto n = static_cast<unsigned>(all.size());
  if (n < 2) return nullptr;
  const unsigned start = random_.below(n);
  for (unsigned i = 0; i < n; ++i) {
    worker& victim = *all[(start + i) % n];
    if (&victim == this) continue;
    std::uint32_t taken = 0;
    if (fiber* const f = queue_.steal_from(victim.queue_, taken)) {
      counters.steals.add(taken);
      if (counters.log.is_on()) counters.log.write(event_kind::steal, taken);
      return f;
    }
  }
  return nullptr;
}

void worker::push_pinned(fiber& f) noexcept {
  inbox_.push(f);
  sched.idle().wake(idling.place());
}

bool worker::nothing_else() noexcept {
  const bool none_here = by_seed_ != nullptr ? by_seed_->empty() : queue_.looks_empty();
  return none_here && inbox_.looks_empty() && sched.injected.looks_empty() &&
         !sched.timers().has_callbacks() && sched.signals.hint() == 0 &&
         !turns_.due(idling.is_looking());
}

// --- running

[[gnu::always_inline]] inline void worker::about_to_run(fiber& f) noexcept {
  counters.switches.add();  // first: a thread that finds the fiber here finds its count
  order_plain_memory();
  current = &f;
  // ordering: the fiber is owned by this worker now; both words were handed
  // over through the queue or the exchange that found it.
  f.park_state.store(park_word::running, order::relaxed);
  f.state.store(fiber_state::running, order::relaxed);  // ordering: as above
  // ordering: the load, the worker's own. Pairs with the acquire in take_view(),
  // which sees `running` with the new count, and with is_unmoved(): the stack is written
  // later.
  f.runs.store(f.runs.load(order::relaxed) + 1, order::release);
  order_plain_memory();
  record_stretch(left_);
  counters.queued.end(f);
}

void worker::enter(fiber& f) noexcept {
  about_to_run(f);
  detail::enter(*side_, f.side);
  fiber& last = *std::exchange(current, nullptr);
  record_stretch(&last);
  after(last);
}

void worker::write_stretch(const fiber* left) noexcept {
  departure how;
  if (left != nullptr) how.how = after_;
  // ordering: its own worker reads it.
  if (how.how == left_by::park)
    how.reason = static_cast<std::uint8_t>(left->present.reason.load(order::relaxed));
  if (current != nullptr) {
    counters.log.run(current->identity, current->role == fiber_role::runner, how);
  } else {
    counters.log.leave(left->identity, how);
  }
}

void worker::park() noexcept {
  leave_for(pick_directly(), left_by::park);
}

void worker::leave_timer_fiber(bool more) noexcept {
  leave_for(nullptr, more ? left_by::yield : left_by::park);
}

void worker::yield() noexcept {
  fiber* next = nullptr;
  if (by_seed_ != nullptr || !queue_.looks_empty()) next = pick_directly();
  if (next == nullptr && nothing_else()) {
    // I/O has its turn even when one fiber alone yields for ever.
    if (!turns_.yields_to_io()) {
      new_stretch();
      return;
    }
  }
  leave_for(next, left_by::yield);
}

// Leaves for `next`, or for the worker, which looks for one.
inline void worker::leave_for(fiber* next, left_by how) noexcept {
  fiber& self = *current;
  after_ = how;
  if (next == nullptr) {
    leave(self.side);
  } else {
    left_ = &self;
    about_to_run(*next);
    hand_over(*side_, self.side, next->side);
  }
  arrived();
}

void worker::leave_for_ever_to_end() noexcept {
  fiber& self = *current;
  after_ = left_by::end;
  fiber* const next = pick_directly();
  if (next == nullptr) leave_for_ever(self.side);
  left_ = &self;
  about_to_run(*next);
  hand_over_for_ever(*side_, self.side, next->side);
}

void worker::arrived() noexcept {
  worker& here = *current_worker();
  fiber* const before = std::exchange(here.left_, nullptr);
  if (before == nullptr) return;
  // The act for the other fiber may make system calls; errno is this one's.
  const int error_number = here.side_->error_number();
  here.after(*before);
  here.side_->set_error_number(error_number);
}

// Does what the fiber asked for, now that it is off its stack.
void worker::after(fiber& f) noexcept {
  const left_by how = std::exchange(after_, left_by::none);
  if (f.role == fiber_role::timer && how != left_by::end) [[unlikely]] {
    after_timer_fiber(f, how);
    return;
  }
  switch (how) {
    case left_by::none:
      break;
    case left_by::park: {
      f.has_left(fiber_state::parked);
      auto expected = park_word::running;
      // PK1. Pairs with the exchange in ready().
      const bool parked = f.park_state.compare_exchange_strong(
          expected, park_word::parked, order::acq_rel, order::acquire);
      if (!parked) sched.make_runnable(f);  // if parked, f may be gone by now
      break;
    }
    case left_by::yield:
      f.has_left(fiber_state::runnable);
      if (by_seed_ != nullptr) {
        by_seed_->add_yielded(f);
      } else if (push(f, run_order::in_order)) {
        sched.work_added_here(*this);
      }
      break;
    case left_by::end:
      sched.ended(f);
      break;
  }
}

// The timer fiber is parked either way, where any worker finds it.
void worker::after_timer_fiber(fiber& f, left_by how) noexcept {
  f.has_left(fiber_state::parked);
  // Pairs with the exchange in take_timer_fiber(). A worker that finds it missing goes on
  // with other work: this one looks again right after.
  sched.board.parked_timer_fiber.store(&f, order::release);
  // A deadline that came meanwhile is seen at the next turn of this very worker, or after
  // a few if this was a long burst.
  if (how == left_by::yield && !idling.is_looking() && by_seed_ == nullptr) {
    turns_.read_clock_later();
  } else {
    turns_.read_clock_next();
  }
  cover_before_user_code = true;  // HK2 of heap_keeper.hpp
}

}  // namespace VIGIL_DETAIL
