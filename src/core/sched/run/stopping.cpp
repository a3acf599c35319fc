// How a run is stopped: RE1 to RE3 of end.cpp, and the fibers that count the time.
//
//   the stopper     a fiber of ours: cancels the root context, waits for the grace
//                   period, stops the others, and counts the stop limit
//   the root watch  another one, while a cancel of the root context is under way
//
// Both are deadline fibers: they wait until their time has passed or they are let off.
//
// The grace is the longest that is announced at the time. A server that withdraws its
// request, or a later signal, wakes the fibers that wait for the end of the grace (the
// main fiber is one), and they look again: each has opened its wait under lock_, after
// it has looked there. When their time has passed they look once more, for a grace that
// was announced meanwhile.
#include "core/base/assert.hpp"
#include "core/machine/signal_name.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/fiber/visitors.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/run/run_end.hpp"
#include "core/sched/worker/signal_hub.hpp"
#include "core/sched/worker/system_fiber.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// A signal of stop_on ends the grace if the end, whatever its cause, began at least this
// long ago. An earlier signal means the same end: a process group gets a signal that its
// leader relays as well, and a terminal that goes away sends more than one.
constexpr nanos grace_at_least = 200'000'000;

// The grace of main's function after a signal if none is named, and the time after which
// a line on standard error says that it uses it.
constexpr nanos main_grace = 5'000'000'000;
constexpr nanos main_is_told_after = 1'000'000'000;

}  // namespace

void run_end::request_stop() noexcept {
  // The run may end at once, and the runtime with it.
  const visit inside(sched_.inside());
  bool is_idle = false;
  {
    const lock_guard guard(lock_);
    sched_.signals.note_stop();
    // Kept for the next run, whose beginning takes the lock: open_run().
    is_idle = sched_.state.phase() == run_phase::idle;
  }
  // A worker does the rest, as for a signal. One that lies down now sees the bit (IA1).
  if (!is_idle) sched_.idle().wake_all();
}

// Notes when the end began, and whether by a signal: the first call does, before the
// phase says so.
void run_end::note_begin(int signal) noexcept {
  const lock_guard guard(lock_);
  if (since_.load() != 0) return;
  const nanos now = sched_.clock.now();
  since_.store(now);
  unnamed_.is_given = signal != 0 && !sched_.settings().grace.has_value() && !main_has_returned_;
  unnamed_.tell_at = saturating_add(now, main_is_told_after);
}

void run_end::begin(int signal) noexcept {
  note_begin(signal);
  if (!sched_.state.change_phase(run_phase::running, run_phase::ending)) return;
  // The root context comes first. Its end may call functions of the user's, so a fiber
  // cancels it: the stopper.
  if (grace_left() <= 0 && root.load() == nullptr) stop_all();
  start_stopper();
}

// --- signals

void run_end::take_signals() noexcept {
  const std::uint64_t bits = sched_.signals.take();
  if ((bits & 1) != 0) begin();
  for (int signal = 1; signal < 64; ++signal) {
    if ((bits >> signal & 1) == 0) continue;
    const auto& stop_on = sched_.settings().stop_on;
    if (std::find(stop_on.begin(), stop_on.end(), signal) != stop_on.end()) {
      const nanos since = since_.load();
      int none = 0;
      stop_signal_.compare_exchange_strong(none, signal);
      begin(signal);
      if (since != 0 && sched_.clock.now() - since >= grace_at_least) end_grace();
    }
    sched_.signals.deliver(signal);
  }
}

// --- the grace

// A server that runs has named one, however short.
bool run_end::unnamed_grace_counts() const noexcept {
  return unnamed_.is_given && graces_.empty();
}

nanos run_end::longest_grace() const noexcept {
  if (unnamed_grace_counts()) return main_grace;
  nanos longest =
      sched_.settings().grace ? std::max<nanos>(sched_.settings().grace->count(), 0) : 0;
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
  return grace_until() - sched_.clock.now();
}

void run_end::announce_grace(grace_request& r) noexcept {
  const lock_guard guard(lock_);
  graces_.push_back(r);
}

void run_end::withdraw_grace(grace_request& r) noexcept {
  {
    const lock_guard guard(lock_);
    graces_.remove(r);
    // Main has a second from here before the line comes.
    if (unnamed_grace_counts())
      unnamed_.tell_at = saturating_add(sched_.clock.now(), main_is_told_after);
  }
  if (sched_.state.phase() != run_phase::running) look_at_grace_again();
}

void run_end::look_at_grace_again() noexcept {
  wake_list claimed;
  {
    const lock_guard guard(lock_);
    for (deadline_fiber* const k : {&stopper_, &root_watch_}) {
      if (k->in_grace) claimed.end(k->waits);
    }
    if (awaited_ == end_wait::grace) claimed.end(main_waits_);
  }
  claimed.deliver();
}

// Called when the user has asked twice, or when nothing would happen in the grace any
// more.
void run_end::end_grace() noexcept {
  stop_all();
  look_at_grace_again();
}

// Counts itself as a fiber of ours first, and looks at the phase second; the main fiber
// closes first and looks at the count second (RE5, RE6 of end.cpp). So the main fiber is
// still there for the stopper, although this call or a thread may wake it meanwhile.
void run_end::begin_by_deadlock() noexcept {
  sched_.fibers.count_system(1);
  if (sched_.state.phase() < run_phase::closed) {
    note_begin();
    sched_.state.advance(run_phase::ending);
    end_grace();  // the fibers that wait for its end wake, and see to the stop limit
    start_stopper();
  }
  sched_.fibers.count_system(-1);
}

// The main fiber's control block may go at any moment, if a thread from outside has
// woken the fiber meanwhile: under the lock it is there (set_main_fiber).
bool run_end::waits_for_stop_signal() noexcept {
  if (sched_.settings().stop_on.empty()) return false;
  {
    const lock_guard guard(lock_);
    if (main_fiber_ == nullptr) return false;
    const wait_reason reason = main_fiber_->present.reason.load();
    if (reason == wait_reason::sleep || reason == wait_reason::select_none) return true;
  }
  cancel_node* const top = root.load();
  return top != nullptr && top->is_waited_for();
}

// --- the root context

// Called once the phase says that the end has begun: a fiber that makes a root context
// looks at the phase afterwards. Both sequentially consistent, so one sees the other.
//
// The cancel may call functions of the user's (callbacks of a std::stop_token,
// destructors), and they may block: so the root watch counts meanwhile. Two fibers may be
// here at a time, and either may be the one that calls them. The main fiber waits for the
// stopper's call as for the other fibers (RE4).
void run_end::cancel_root() noexcept {
  cancel_node* const node = root.load();
  if (node == nullptr) return;
  if (root_cancels_.fetch_add(1) == 0 && !node->is_done() && current_fiber() != nullptr) {
    try {
      start_system_fiber<&run_end::watch_root>(sched_, "shutdown watch", *this);
    } catch (...) {
      // No stack for the root watch: nobody counts until the main fiber does.
    }
  }
  node->cancel(cancel_state::shutdown, nullptr);
  if (root_cancels_.fetch_sub(1) != 1) return;
  dismiss(root_watch_);
  sched_.ending.something_ended();
}

void run_end::watch_root() noexcept {
  fiber& self = *current_fiber();
  // A large tree takes a while even if no function blocks.
  constexpr nanos at_least = 100'000'000;
  const nanos limit = std::max(stop_limit(), at_least);
  if (!wait_out_grace_as(root_watch_, self)) return;
  if (wait_as(root_watch_, self, limit) != kept::dismissed) stop_limit_passed(limit);
}

// Starts the stopper, once in a run. The main fiber dismisses it once it comes to its end
// itself.
void run_end::start_stopper() noexcept {
  {
    const lock_guard guard(lock_);
    if (std::exchange(stopper_started_, true)) return;
  }
  try {
    start_system_fiber<&run_end::stopper_body>(sched_, "shutdown", *this);
  } catch (...) {
    cancel_root();
    stop_all();  // no stack for the stopper: no grace
  }
}

void run_end::stopper_body() noexcept {
  fiber& self = *current_fiber();
  stopper_fiber_.store(&self);
  // As in finish_run(): the user's functions may wait here, and a stop does not throw
  // into them, since nothing could catch the exception.
  ++self.guards.shields;
  cancel_root();
  --self.guards.shields;
  stopper_fiber_.store(nullptr);
  if (!wait_out_grace_as(stopper_, self)) return;
  stop_all();
  const nanos limit = stop_limit();
  if (wait_as(stopper_, self, limit) != kept::dismissed) stop_limit_passed(limit);
}

// Waits out the grace; false if the deadline_fiber was dismissed meanwhile.
bool run_end::wait_out_grace_as(deadline_fiber& role, fiber& self) noexcept {
  kept result = kept::woken;
  while (result == kept::woken && !sched_.state.stopping()) {
    result = wait_as(role, self, std::nullopt);
    tell_of_main();
  }
  return result != kept::dismissed;
}

// Says once on standard error what main's function waits for, when that is due.
void run_end::tell_of_main() noexcept {
  fiber_state state = fiber_state::running;
  wait_reason reason = wait_reason::none;
  nanos ago = 0;
  nanos left = 0;
  {
    const lock_guard guard(lock_);
    const nanos now = sched_.clock.now();
    if (!unnamed_grace_counts() || unnamed_.is_told || now < unnamed_.tell_at) return;
    if (main_fiber_ == nullptr || sched_.state.stopping()) return;
    unnamed_.is_told = true;
    state = main_fiber_->state.load();
    reason = main_fiber_->present.reason.load();
    ago = now - since_.load();
    left = grace_until() - now;
  }
  const bool waits = state == fiber_state::parked;
  warn(
      "%s came %.3f s ago, and main's function has not returned; it %s%s. It is stopped in %.3f s, "
      "the default of options::grace, or at once by another such signal",
      signal_name(stop_signal()).text,
      static_cast<double>(ago) / 1e9,
      waits ? "waits for: " : "is ",
      waits ? to_string(reason) : to_string(state),
      static_cast<double>(left) / 1e9);
}

// Waits for the length, or if there is none, to the end of the grace.
run_end::kept run_end::wait_as(deadline_fiber& role,
                               fiber& self,
                               std::optional<nanos> length) noexcept {
  lock_.lock();
  role.in_grace = !length.has_value();
  if (role.dismissed || (role.in_grace && sched_.state.stopping())) {
    const kept result = role.dismissed ? kept::dismissed : kept::over;
    lock_.unlock();
    return result;
  }
  nanos until =
      length ? saturating_add(sched_.clock.now(), std::max<nanos>(*length, 0)) : grace_until();
  if (role.in_grace && unnamed_grace_counts() && !unnamed_.is_told)
    until = std::min(until, unnamed_.tell_at);
  const ticket t = self.own_waiter.open(false);
  role.waits = {&self.own_waiter, t};
  outcome result = outcome::timeout;
  bool has_waited = true;
  lock_.unlock();
  try {
    result = wait(self, t, wait_reason::shutdown, detail::until(until), false);
  } catch (const std::bad_alloc&) {
    has_waited = false;  // no memory for the deadline: it counts as passed
  }
  const lock_guard guard(lock_);
  role.waits.whose = nullptr;
  if (role.dismissed) return kept::dismissed;
  if (result != outcome::timeout) return kept::woken;
  // A longer grace may have been announced meanwhile.
  return has_waited && role.in_grace && grace_until() > until ? kept::woken : kept::over;
}

void run_end::dismiss(deadline_fiber& role) noexcept {
  wake_list claimed;
  {
    const lock_guard guard(lock_);
    role.dismissed = true;
    claimed.end(role.waits);
  }
  claimed.deliver();
}

void run_end::stop_all() noexcept {
  if (!sched_.state.advance(run_phase::stopping)) return;
  sched_.fibers.for_each([](fiber& f) {
    if (f.own_waiter.claim_stop()) f.own_waiter.deliver();
  });
  // A part that is made from now on finds stopping() set.
  sched_.parts_above.for_each([](runtime_part& p) { p.stop_all(); });
}

void run_end::stop_limit_passed(nanos waited) noexcept {
  warn(
      "the shutdown has waited %.3f s (options::stop_limit) for these; a wait in a shield or a "
      "destructor, a long computation, catch (...), or a function on a side pool that does not "
      "return keeps them:",
      static_cast<double>(waited) / 1e9);
  const fiber* const self = current_fiber();  // the deadline_fiber that calls
  sched_.fibers.for_each([this, self](const fiber& f) {
    if (&f == self) return;
    const fiber_state state = f.state.load();
    const wait_reason reason = f.present.reason.load();
    const bool in_root = root_cancels_.load() != 0 && reason != wait_reason::shutdown &&
                         (f.role == fiber_role::main || &f == stopper_fiber_.load());
    // A runner of tasks may wait in one of them.
    const bool is_free = reason == wait_reason::idle_runner || reason == wait_reason::none;
    const bool ours =
        f.role == fiber_role::timer || reason == wait_reason::shutdown ||
        (f.role == fiber_role::runner && f.callback.timer.load() == nullptr && is_free);
    if (ours && !in_root) return;
    warn("  %s, %s, waits for: %s, started at %s%s",
         fiber_words(f.identity).text(),
         to_string(state),
         to_string(reason),
         place_in_words(f.identity).text,
         in_root ? ", inside a stop_callback or destructor that the end of the root context runs"
                 : "");
  });
  dump_writer out(STDERR_FILENO);
  calls_.write(out);
  sched_.parts_above.for_each([&out](runtime_part& p) { p.write(out); });
  out.flush();
  if (sched_.clock.is_virtual()) {
    warn("this run on virtual time failed with seed %llu; VIGIL_SEED=%llu replays it",
         static_cast<unsigned long long>(sched_.settings().seed),
         static_cast<unsigned long long>(sched_.settings().seed));
  }
  fatal("shutdown: giving up");
}

}  // namespace VIGIL_DETAIL
