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
// look again: each has opened its wait under lock_, after it has looked there. They
// look once more when their time has passed, for what was announced meanwhile.
#include "base/assert.hpp"
#include "sched/fiber/park.hpp"
#include "sched/fiber/visitors.hpp"
#include "sched/fiber/written_name.hpp"
#include "sched/report/fiber_dump.hpp"
#include "sched/run/run_end.hpp"
#include "sched/run/signal_hub.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// A signal of stop_on ends the grace if the end has begun so long ago, whoever began
// it. Earlier it means the same end: a process group gets what its leader relays as
// well, and a terminal that goes away sends more than one.
constexpr nanos grace_kept = 200'000'000;

}  // namespace

void run_end::request_stop() noexcept {
  // The run may end at once, and the runtime with it.
  const visit inside(visitors_);
  bool is_idle = false;
  {
    const lock_guard guard(lock_);
    signals_.note_stop();
    // Kept for the next run, whose beginning takes the lock: open_run().
    is_idle = state_.phase() == run_phase::idle;
  }
  // Done by a worker, as for a signal.
  if (!is_idle) signals_.wake_all(waker::thread);
}

// The first who comes to the end does, before the phase says so.
void run_end::note_begin() noexcept {
  nanos none = 0;
  since_.compare_exchange_strong(none, clock_.now());
}

void run_end::begin() noexcept {
  note_begin();
  if (!state_.change_phase(run_phase::running, run_phase::ending)) return;
  // The root context first, which may call functions of the user's: a fiber's work.
  if (grace_left() <= 0 && root.load() == nullptr) stop_all();
  start_stopper();
}

// --- signals

void run_end::take_signals() noexcept {
  const std::uint64_t bits = signals_.take();
  if ((bits & 1) != 0) begin();
  for (int signal = 1; signal < 64; ++signal) {
    if ((bits >> signal & 1) == 0) continue;
    const auto& stop_on = settings_.stop_on;
    if (std::find(stop_on.begin(), stop_on.end(), signal) != stop_on.end()) {
      const nanos since = since_.load();
      begin();
      if (since != 0 && clock_.now() - since >= grace_kept) end_grace();
    }
    signals_.deliver(signal);
  }
}

// --- the grace

nanos run_end::longest_grace() const noexcept {
  nanos longest = std::max<nanos>(settings_.grace.count(), 0);
  for (const grace_request* r = graces_.front(); r != nullptr;
       r = list<grace_request, &grace_request::hook>::next(*r)) {
    longest = std::max(longest, r->length);
  }
  return longest;
}

nanos run_end::grace_until() const noexcept {
  return saturating_add(since_.load(), longest_grace());
}

nanos run_end::grace_left() noexcept {
  const lock_guard guard(lock_);
  return grace_until() - clock_.now();
}

void run_end::announce_grace(grace_request& r) noexcept {
  const lock_guard guard(lock_);
  graces_.push_back(r);
}

void run_end::withdraw_grace(grace_request& r) noexcept {
  {
    const lock_guard guard(lock_);
    graces_.remove(r);
  }
  if (state_.phase() != run_phase::running) look_at_grace_again();
}

void run_end::look_at_grace_again() noexcept {
  waiter* woken[3] = {};
  {
    const lock_guard guard(lock_);
    waiter** next = woken;
    for (timekeeper* const k : {&stopper_, &root_watch_}) {
      if (k->who == nullptr || !k->in_grace) continue;
      if (k->who->claim(k->which, outcome::value)) *next++ = k->who;
      k->who = nullptr;
    }
    if (waiting_ != nullptr && what_ == end_wait::grace) {
      if (waiting_->claim(ticket_, outcome::value)) *next = waiting_;
      waiting_ = nullptr;
    }
  }
  for (waiter* const w : woken) {
    if (w != nullptr) w->deliver();
  }
}

// The user has asked twice, or nothing would happen in it any more.
void run_end::end_grace() noexcept {
  stop_all();
  look_at_grace_again();
}

// Counted as a fiber of ours first, looked at the phase second; the main fiber
// closes first and looks at the count second (E5, E6 of end.cpp). So it is still
// there for the stopper, although it may be woken here or by a thread meanwhile.
void run_end::begin_by_deadlock() noexcept {
  fibers_.count_system(1);
  if (state_.phase() < run_phase::closed) {
    note_begin();
    state_.advance(run_phase::ending);
    end_grace();  // whoever waits for its end wakes, and sees to the stop limit
    start_stopper();
  }
  fibers_.count_system(-1);
}

// The main fiber's block may go at any moment, if a thread from outside has woken
// it meanwhile: under the lock it is there (set_main_fiber).
bool run_end::waits_for_stop_signal() noexcept {
  if (settings_.stop_on.empty()) return false;
  {
    const lock_guard guard(lock_);
    if (main_fiber_ == nullptr) return false;
    const wait_reason why = main_fiber_->reason.load();
    if (why == wait_reason::sleep || why == wait_reason::select_none) return true;
  }
  cancel_node* const top = root.load();
  return top != nullptr && top->is_waited_for();
}

// --- the root context

// After the phase says that the end has begun: who makes a root context looks at
// the phase afterwards. Both sequentially consistent, so one sees the other.
//
// It may call functions of the user's (callbacks of a std::stop_token, destructors),
// and they may block: so somebody counts meanwhile. Two may be here at a time, and
// either may be the one who calls them. The main fiber waits for the stopper's as
// for the others (E4).
void run_end::cancel_root() noexcept {
  cancel_node* const node = root.load();
  if (node == nullptr) return;
  if (root_cancels_.fetch_add(1) == 0 && !node->is_done() && current_fiber() != nullptr) {
    try {
      const auto body = [](void* of, fiber& self) noexcept {
        static_cast<run_end*>(of)->watch_root(self);
      };
      starter_.start_system_fiber("shutdown watch", body, this);
    } catch (...) {
      // No stack for it: nobody counts until the main fiber does.
    }
  }
  node->cancel(cancel_state::shutdown, nullptr);
  if (root_cancels_.fetch_sub(1) != 1) return;
  let_off(root_watch_);
  something_ended();
}

void run_end::watch_root(fiber& self) noexcept {
  // A large tree takes a while, too.
  constexpr nanos at_least = 100'000'000;
  const nanos limit = std::max(stop_limit(), at_least);
  if (!wait_out_grace_as(root_watch_, self)) return;
  if (wait_as(root_watch_, self, limit) != kept::dismissed) stop_limit_passed(limit);
}

// A fiber of our own that waits for the grace period, stops the others, and
// sees to it that the main fiber does not outlive the stop limit. The main
// fiber dismisses it once it comes to its end itself.
void run_end::start_stopper() noexcept {
  waiter* waiting = nullptr;
  {
    const lock_guard guard(lock_);
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
    const auto body = [](void* of, fiber& self) noexcept {
      static_cast<run_end*>(of)->stopper_body(self);
    };
    starter_.start_system_fiber("shutdown", body, this);
  } catch (...) {
    cancel_root();
    stop_all();  // no stack for the fiber that waits: no grace
  }
}

void run_end::stopper_body(fiber& self) noexcept {
  stopper_fiber_.store(&self);
  // As in finish_run(): what the user's functions there wait for they get, but no
  // exception, which nobody could catch.
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
bool run_end::wait_out_grace_as(timekeeper& which, fiber& self) noexcept {
  kept how = kept::woken;
  while (how == kept::woken && !state_.stopping())
    how = wait_as(which, self, std::nullopt);
  return how != kept::dismissed;
}

// Without a length: to the end of the grace.
run_end::kept run_end::wait_as(timekeeper& which,
                               fiber& self,
                               std::optional<nanos> length) noexcept {
  lock_.lock();
  which.in_grace = !length.has_value();
  if (which.dismissed || (which.in_grace && state_.stopping())) {
    const kept how = which.dismissed ? kept::dismissed : kept::over;
    lock_.unlock();
    return how;
  }
  const nanos until =
      length ? saturating_add(clock_.now(), std::max<nanos>(*length, 0)) : grace_until();
  const ticket t = self.self.open(false);
  if (length) state_.set_gives_up_at(until);
  which.who = &self.self;
  which.which = t;
  outcome how = outcome::timeout;
  bool has_waited = true;
  try {
    how = wait(self, t, wait_reason::shutdown, detail::until(until), false, lock_);
  } catch (const std::bad_alloc&) {
    has_waited = false;  // no room for the deadline: it is as if it had come
  }
  const lock_guard guard(lock_);
  which.who = nullptr;
  if (which.dismissed) return kept::dismissed;
  if (how != outcome::timeout) return kept::woken;
  // More may have been announced meanwhile.
  return has_waited && which.in_grace && grace_until() > until ? kept::woken : kept::over;
}

void run_end::let_off(timekeeper& which) noexcept {
  waiter* w = nullptr;
  {
    const lock_guard guard(lock_);
    which.dismissed = true;
    if (which.who != nullptr && which.who->claim(which.which, outcome::value)) w = which.who;
    which.who = nullptr;
  }
  if (w != nullptr) w->deliver();
}

void run_end::stop_all() noexcept {
  if (!state_.begin_stopping()) return;
  state_.advance(run_phase::stopping);
  fibers_.for_each([](fiber& f) {
    if (f.self.claim_stop()) f.self.deliver();
  });
  state_.note_all_stopped();
}

void run_end::stop_limit_passed(nanos waited) noexcept {
  warn(
      "the shutdown has waited %.3f s (options::stop_limit) for these; a wait in a shield or a "
      "destructor, a long computation, catch (...), or a function on a side pool that does not "
      "return keeps them:",
      static_cast<double>(waited) / 1e9);
  const fiber* const self = current_fiber();  // it counts
  fibers_.for_each([this, self](const fiber& f) {
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
  calls_.name();
  if (clock_.is_virtual()) {
    warn("this run on virtual time failed with seed %llu; VIGIL_SEED=%llu replays it",
         static_cast<unsigned long long>(settings_.seed),
         static_cast<unsigned long long>(settings_.seed));
  }
  fatal("shutdown: giving up");
}

}  // namespace vigil::inline VIGIL_ABI::detail
