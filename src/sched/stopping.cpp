// How a run is stopped: E1 to E3 of end.cpp, and who counts meanwhile.
//
//   the stopper     a fiber of ours: cancels the root context, waits for the grace
//                   period, stops the others, and counts the stop limit
//   the root watch  another, while a cancel of the root context is under way
//
// Both are timekeepers: they wait for their time or until they are let off.
//
// The grace is the longest that anybody asks for at the time. Who withdraws his, and
// a later signal, wake those that wait for its end (the main fiber is one), and they
// look again: each has opened its wait under end_lock_, after it has looked there. They
// look once more when their time has passed, for what was announced meanwhile.
#include "sched/fiber_dump.hpp"
#include "sched/park.hpp"
#include "sched/scheduler.hpp"
#include "sched/written_name.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace vigil::internal {
namespace {

// A signal of stop_on ends the grace if the end has begun so long ago, whoever began
// it. Earlier it means the same end: a process group gets what its leader relays as
// well, and a terminal that goes away sends more than one.
constexpr nanos grace_kept = 200'000'000;

}  // namespace

void scheduler::request_stop() noexcept {
  // The run may end at once, and the runtime with it.
  const visit inside(visitors_);
  bool is_idle = false;
  {
    const lock_guard guard(end_lock_);
    signals.note_stop();
    // Kept for the next run, whose beginning takes the lock: begin_run().
    is_idle = phase() == run_phase::idle;
  }
  // Done by a worker, as for a signal.
  if (!is_idle) signals.wake_all(waker::thread);
}

// The phase only goes forward, whoever is late.
void scheduler::advance(run_phase to) noexcept {
  run_phase seen = phase_.load();
  while (seen < to && !phase_.compare_exchange_weak(seen, to)) {
  }
}

// The first who comes to the end does, before the phase says so.
void scheduler::note_end() noexcept {
  nanos none = 0;
  end_since_.compare_exchange_strong(none, clock.now());
}

void scheduler::begin_end() noexcept {
  note_end();
  auto expected = run_phase::running;
  if (!phase_.compare_exchange_strong(expected, run_phase::ending)) return;
  // The root context first, which may call functions of the user's: a fiber's work.
  if (grace_left() <= 0 && root.load() == nullptr) stop_all();
  start_stopper();
}

// --- signals

void scheduler::take_signals() noexcept {
  const std::uint64_t bits = signals.take();
  if ((bits & 1) != 0) begin_end();
  for (int signal = 1; signal < 64; ++signal) {
    if ((bits >> signal & 1) == 0) continue;
    const auto& stop_on = settings_.stop_on;
    if (std::find(stop_on.begin(), stop_on.end(), signal) != stop_on.end()) {
      const nanos since = end_since_.load();
      begin_end();
      if (since != 0 && clock.now() - since >= grace_kept) end_grace();
    }
    signals.deliver(signal);
  }
}

// --- the grace

nanos scheduler::longest_grace() const noexcept {
  nanos longest = std::max<nanos>(settings_.grace.count(), 0);
  for (const grace_request* r = graces_.front(); r != nullptr;
       r = list<grace_request, &grace_request::hook>::next(*r)) {
    longest = std::max(longest, r->length);
  }
  return longest;
}

nanos scheduler::grace_until() const noexcept {
  return saturating_add(end_since_.load(), longest_grace());
}

nanos scheduler::grace_left() noexcept {
  const lock_guard guard(end_lock_);
  return grace_until() - clock.now();
}

void scheduler::announce_grace(grace_request& r) noexcept {
  const lock_guard guard(end_lock_);
  graces_.push_back(r);
}

void scheduler::withdraw_grace(grace_request& r) noexcept {
  {
    const lock_guard guard(end_lock_);
    graces_.remove(r);
  }
  if (phase() != run_phase::running) look_at_grace_again();
}

void scheduler::look_at_grace_again() noexcept {
  waiter* woken[3] = {};
  {
    const lock_guard guard(end_lock_);
    waiter** next = woken;
    for (timekeeper* const k : {&stopper_, &root_watch_}) {
      if (k->who == nullptr || !k->in_grace) continue;
      if (k->who->claim(k->which, outcome::value)) *next++ = k->who;
      k->who = nullptr;
    }
    if (end_waiter_ != nullptr && end_what_ == end_wait::grace) {
      if (end_waiter_->claim(end_ticket_, outcome::value)) *next = end_waiter_;
      end_waiter_ = nullptr;
    }
  }
  for (waiter* const w : woken) {
    if (w != nullptr) w->deliver();
  }
}

// The user has asked twice, or nothing would happen in it any more.
void scheduler::end_grace() noexcept {
  stop_all();
  look_at_grace_again();
}

// --- the root context

// After the phase says that the end has begun: who makes a root context looks at
// the phase afterwards. Both sequentially consistent, so one sees the other.
//
// It may call functions of the user's (callbacks of a std::stop_token, destructors),
// and they may block: so somebody counts meanwhile. Two may be here at a time, and
// either may be the one who calls them. The main fiber waits for the stopper's as
// for the others (E4).
void scheduler::cancel_root() noexcept {
  stop_node* const node = root.load();
  if (node == nullptr) return;
  if (root_cancels_.fetch_add(1) == 0 && !node->is_done() && current_fiber() != nullptr) {
    try {
      start_timekeeper("shutdown watch", &scheduler::watch_root);
    } catch (...) {
      // No stack for it: nobody counts until the main fiber does.
    }
  }
  node->cancel(stop_state::shutdown, nullptr);
  if (root_cancels_.fetch_sub(1) != 1) return;
  let_off(root_watch_);
  something_ended();
}

void scheduler::watch_root(fiber& self) noexcept {
  // A large tree takes a while, too.
  constexpr nanos at_least = 100'000'000;
  const nanos limit = std::max(stop_limit(), at_least);
  if (!wait_out_grace_as(root_watch_, self)) return;
  if (wait_as(root_watch_, self, limit) != kept::dismissed) stop_limit_passed(limit);
}

// A fiber of our own that waits for the grace period, stops the others, and
// sees to it that the main fiber does not outlive the stop limit. The main
// fiber dismisses it once it comes to its end itself.
void scheduler::start_stopper() noexcept {
  waiter* waiting = nullptr;
  {
    const lock_guard guard(end_lock_);
    if (std::exchange(stopper_started_, true)) {
      // There is one. In the grace period it goes on to the stop limit; if it counts
      // that already it is left alone.
      if (!stopper_.in_grace) return;
      waiter* const found = std::exchange(stopper_.who, nullptr);
      if (found == nullptr || !found->claim(stopper_.which, outcome::value)) return;
      waiting = found;
    }
  }
  if (waiting != nullptr) {
    waiting->deliver();
    return;
  }
  try {
    start_timekeeper("shutdown", &scheduler::stopper_body);
  } catch (...) {
    cancel_root();
    stop_all();  // no stack for the fiber that waits: no grace
  }
}

void scheduler::start_timekeeper(const char* name, void (scheduler::*duty)(fiber&) noexcept) {
  struct body {
    scheduler* sched;
    void (scheduler::*duty)(fiber&) noexcept;
  };

  fiber& f = make_fiber(0, name, sizeof(body), alignof(body), site{"vigil", 0}, fiber_role::runner);
  ::new (f.body) body{this, duty};
  static constexpr detail::body_table table = {[](void* of) {
                                                 const body& b = *static_cast<body*>(of);
                                                 (b.sched->*b.duty)(*current_fiber());
                                               },
                                               [](void*) noexcept {},
                                               [](void*) noexcept {},
                                               [](void*) noexcept -> void* { return nullptr; }};
  f.table = &table;
  f.handle.store(handle_state::detached);
  fibers.count_system(1);
  adopt(f);
  make_runnable(f);
}

void scheduler::stopper_body(fiber& self) noexcept {
  stopper_fiber_.store(&self);
  // As in end_run(): what the user's functions there wait for they get, but no exception,
  // which nobody could catch.
  ++self.shields;
  cancel_root();
  --self.shields;
  stopper_fiber_.store(nullptr);
  if (!wait_out_grace_as(stopper_, self)) return;
  stop_all();
  const nanos limit = stop_limit();
  if (wait_as(stopper_, self, limit) != kept::dismissed) stop_limit_passed(limit);
}

// False if it was dismissed meanwhile.
bool scheduler::wait_out_grace_as(timekeeper& which, fiber& self) noexcept {
  kept how = kept::woken;
  while (how == kept::woken && !stopping())
    how = wait_as(which, self, std::nullopt);
  return how != kept::dismissed;
}

// Without a length: to the end of the grace.
scheduler::kept scheduler::wait_as(timekeeper& which,
                                   fiber& self,
                                   std::optional<nanos> length) noexcept {
  end_lock_.lock();
  which.in_grace = !length.has_value();
  if (which.dismissed || (which.in_grace && stopping())) {
    const kept how = which.dismissed ? kept::dismissed : kept::over;
    end_lock_.unlock();
    return how;
  }
  const nanos until =
      length ? saturating_add(clock.now(), std::max<nanos>(*length, 0)) : grace_until();
  const ticket t = self.self.open(false);
  if (length) gives_up_at_.store(until);
  which.who = &self.self;
  which.which = t;
  outcome how = outcome::timeout;
  bool has_waited = true;
  try {
    how = wait(self, t, wait_reason::shutdown, detail::until(until), false, end_lock_);
  } catch (const std::bad_alloc&) {
    has_waited = false;  // no room for the deadline: it is as if it had come
  }
  const lock_guard guard(end_lock_);
  which.who = nullptr;
  if (which.dismissed) return kept::dismissed;
  if (how != outcome::timeout) return kept::woken;
  // More may have been announced meanwhile.
  return has_waited && which.in_grace && grace_until() > until ? kept::woken : kept::over;
}

void scheduler::let_off(timekeeper& which) noexcept {
  waiter* w = nullptr;
  {
    const lock_guard guard(end_lock_);
    which.dismissed = true;
    if (which.who != nullptr && which.who->claim(which.which, outcome::value)) w = which.who;
    which.who = nullptr;
  }
  if (w != nullptr) w->deliver();
}

void scheduler::stop_all() noexcept {
  if (stopping_.exchange(true)) return;
  advance(run_phase::stopping);
  fibers.for_each([](fiber& f) {
    if (f.self.claim_stop()) f.self.deliver();
  });
  all_stopped_.store(true);
}

void scheduler::stop_limit_passed(nanos waited) noexcept {
  warn(
      "the shutdown has waited %.3f s (options::stop_limit) for these; a wait in a shield or a "
      "destructor, a long computation, catch (...), or a function on a side pool that does not "
      "return keeps them:",
      static_cast<double>(waited) / 1e9);
  const fiber* const self = current_fiber();  // it counts
  fibers.for_each([this, self](const fiber& f) {
    if (&f == self) return;
    const fiber_state state = f.state.load();
    const wait_reason reason = f.reason.load();
    const bool in_root = root_cancels_.load() != 0 && reason != wait_reason::shutdown &&
                         (f.role == fiber_role::main || &f == stopper_fiber_.load());
    const bool ours = f.role == fiber_role::timer || reason == wait_reason::shutdown ||
                      (f.role == fiber_role::runner && f.callback.load() == nullptr);
    if (ours && !in_root) return;
    warn("  fiber %llu (%s), %s, waits for: %s, started at %s%s",
         static_cast<unsigned long long>(f.id),
         written_name(f.name).text(),
         to_string(state),
         to_string(reason),
         place_in_words(f).text,
         in_root ? ", inside a stop_callback or destructor that the end of the root context runs"
                 : "");
  });
  calls.name();
  if (is_virtual()) {
    warn("this run on virtual time failed with seed %llu; VIGIL_SEED=%llu replays it",
         static_cast<unsigned long long>(settings_.seed),
         static_cast<unsigned long long>(settings_.seed));
  }
  fatal("shutdown: giving up");
}

// --- the end of a deadlocked run
//
// The stop has unwound whom it can: what it lets go of, others have taken. If all
// rest again, and only the stop limit is to come, then whoever is left waits for a
// lock of another who is left, or for what never comes. So the waits for locks end
// as well, all of them: which of them form the ring nobody knows, since a mutex
// does not know its owner. As often as it takes; what is left after that is for the
// stop limit. It is not given up sooner: a thread from outside that is no longer
// outside work may have claimed the main fiber's wait, and not readied it yet.
// What it has in hand is never a wait for a lock: it takes away the last fiber, timer
// or call for which the main fiber waits (end_listener).

bool scheduler::can_only_give_up(std::uint64_t asleep) noexcept {
  // Whoever stops all may count as asleep; the stopper is started afterwards, so
  // somebody rests after that.
  if (!deadlocks.has_found() || !all_stopped_.load()) return false;
  if (phase() != run_phase::stopping || outside.any()) return false;
  const nanos limit = gives_up_at_.load();
  if (limit == 0 || next_deadline.load() < limit || signals.is_watched()) return false;
  if (!is_virtual() && finds_work()) return false;
  for (const auto& w : workers_) {
    if (w->inbox_filled_.load()) return false;
  }
  return idle_.times_got_up() == asleep;
}

bool scheduler::end_lock_waits() noexcept {
  bool some = false;
  fibers.for_each([&some](fiber& f) {
    if (!f.self.claim_deadlock()) return;
    f.self.deliver();
    some = true;
  });
  return some;
}

}  // namespace vigil::internal
