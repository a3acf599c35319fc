#include "io/operation.hpp"

#include "base/assert.hpp"
#include "io/io_watch.hpp"
#include "sched/run/process.hpp"
#include "sched/scheduler.hpp"
#include "sched/wait/caller.hpp"

#include <vigil/error.hpp>
#include <vigil/io/detail/movable_deadline.hpp>
#include <vigil/io/memory_executor.hpp>

#include <new>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/require.hpp>
#include <boost/asio/system_executor.hpp>

namespace vigil::io::inline VIGIL_ABI::detail {

using boost::asio::any_io_executor;
using boost::asio::cancellation_type_t;
using vigil::detail::lock_guard;
using vigil::detail::outcome;

namespace {

// `ending` says why it is not the outcome itself.
ending ending_of(outcome result) noexcept {
  switch (result) {
    case outcome::timeout:
      return ending::cut;
    case outcome::cancelled:
      return ending::cancelled;
    case outcome::stopped:
      return ending::stopped;
    default:
      return ending::completed;
  }
}

vigil::detail::fiber& fiber_that_may_wait() {
  vigil::detail::fiber* const f = vigil::detail::current_fiber();
  if (f != nullptr) {
    vigil::detail::check_may_park(*f);
    return *f;
  }
  vigil::detail::process_check_fork("vigil::io::use_fiber");
  if (vigil::detail::current_worker() != nullptr) {
    throw wrong_place(
        "vigil::io::use_fiber: it would have to wait inside a handler, on a worker's own stack; "
        "start a fiber with go, and wait there");
  }
  throw wrong_place(
      "vigil::io::use_fiber needs a fiber to wait: call it inside vigil::run, go or spawn, not "
      "on a plain thread nor in a handler");
}

const boost::asio::io_context::executor_type* of_io_context(const any_io_executor& ex) noexcept {
  return ex.target<boost::asio::io_context::executor_type>();
}

bool is_system(const any_io_executor& ex) noexcept {
  return !ex || ex.target<boost::asio::system_executor>() != nullptr;
}

// A fiber may run an io_context itself, but not leave it in the middle of a handler.
void check_is_not_run_here(const any_io_executor& ex) {
  const auto* const of = of_io_context(ex);
  if (of == nullptr || !of->running_in_this_thread()) return;
  throw wrong_place(
      "vigil::io::use_fiber: it would have to wait inside a handler of an io_context that this "
      "very fiber runs (run, poll); start a fiber with go, and wait there");
}

bool is_in(const any_io_executor& ex, const vigil::detail::io_watch& watch) {
  return &boost::asio::query(ex, boost::asio::execution::context) == &watch.context();
}

}  // namespace

operation& begin_operation(any_io_executor own, any_io_executor bound, bool inside) {
  vigil::detail::fiber& self = fiber_that_may_wait();
  check_is_not_run_here(own);
  check_is_not_run_here(bound);
  vigil::detail::io_watch* watch = self.sched->present_watch().as_io_watch();
  if (watch != nullptr && !is_system(own) && !is_in(own, *watch) &&
      (!bound || !is_in(bound, *watch))) {
    watch = nullptr;
  }
  const bool outside = !inside && own.target<memory_executor>() == nullptr;
  const bool anywhere = bound ? is_system(bound) : is_system(own) || of_io_context(own) != nullptr;
  if (bound) {
    // Its context has something to run until the operation is over.
    own = boost::asio::prefer(bound, boost::asio::execution::outstanding_work.tracked);
  }
  return *new operation{*self.sched, watch, anywhere, outside, std::move(own)};
}

// --- references

void retain(operation& o, bool executor) noexcept {
  // From none to one: by its handler at first, later by an emission (run_in()) when the
  // operation has just ended, which then finds that it has.
  // ordering: the caller has a reference already.
  if (executor && o.executors.fetch_add(1, vigil::detail::relaxed) != 0) return;
  o.references.fetch_add(1, vigil::detail::relaxed);  // ordering: the same
}

void release(operation& o, bool executor) noexcept {
  if (executor) {
    // Pairs with itself, as below.
    if (o.executors.fetch_sub(1, vigil::detail::acq_rel) != 1) return;
    any_io_executor over;
    const lock_guard guard(o.lock);
    std::swap(over, o.executor);
  }
  // Pairs with itself: the last one sees what all others did.
  if (o.references.fetch_sub(1, vigil::detail::acq_rel) == 1) delete &o;
}

namespace {

// Empty: any.
any_io_executor executor_in(operation& o) {
  const lock_guard guard(o.lock);
  return o.executor;
}

any_io_executor executor_or_system(operation& o) {
  if (any_io_executor ex = executor_in(o)) return ex;
  return boost::asio::system_executor();
}

// Copies of the associated executor need it still, but it counts no work: a thread that
// is to run out of that may do so once the operation is over.
void untrack(operation& o) noexcept {
  any_io_executor ex = executor_in(o);
  if (!ex) return;
  try {
    ex = boost::asio::prefer(ex, boost::asio::execution::outstanding_work.untracked);
  } catch (...) {  // no memory: it counts until the last copy has gone
    return;
  }
  const lock_guard guard(o.lock);
  if (o.executor) std::swap(ex, o.executor);
}

}  // namespace

any_io_executor executor_of(operation& o, bool posts) {
  if (posts) {
    return boost::asio::require(executor_or_system(o), boost::asio::execution::blocking.never);
  }
  return o.anywhere ? any_io_executor() : executor_or_system(o);
}

boost::asio::execution_context& context_of(operation& o) {
  return boost::asio::query(executor_or_system(o), boost::asio::execution::context);
}

// --- its section, and what asks it to end

namespace {

bool is_done(operation& o) noexcept {
  const lock_guard guard(o.lock);
  return o.done;
}

// f on its executor.
template <class F>
void run_in(operation& o, F f) noexcept {
  try {
    operation_executor<false>(o).execute(f);
  } catch (...) {
    // No memory for the way to its executor: here, as well as can be.
    const operation_section inside(o);
    f();
  }
}

// In the section.
void emit(operation& o, cancellation_type_t type) noexcept {
  if (is_done(o)) return;
  try {
    o.signal.emit(type);
  } catch (const std::bad_alloc&) {
    // If it is to end it is asked again after its next step.
  } catch (...) {
    vigil::detail::fatal("an exception has left a cancellation handler of an operation of Asio's");
  }
}

// OP4
void ask_again(operation& o) noexcept {
  constexpr int answers = 16;  // each of which begins another step
  for (int i = 0; i < answers && o.end_wanted.load(); ++i) {
    o.answered = false;
    emit(o, cancellation_type_t::terminal);
    if (!o.answered) return;
  }
}

}  // namespace

operation_section::operation_section(operation& o) noexcept : operation_(o) {
  retain(o, false);
  o.section.lock();
  ++o.depth;
  if (vigil::detail::fiber* const f = vigil::detail::current_fiber()) ++f->no_parks;
}

operation_section::~operation_section() {
  operation& o = operation_;
  if (o.depth == 1) {
    ask_again(o);
  } else {
    o.answered = true;
  }
  if (vigil::detail::fiber* const f = vigil::detail::current_fiber()) --f->no_parks;
  --o.depth;
  o.section.unlock();
  release(o, false);
}

boost::asio::cancellation_slot slot_of(operation& o) noexcept {
  return o.signal.slot();
}

void cancel(operation& o, cancellation_type_t type) noexcept {
  {
    const lock_guard guard(o.lock);
    if (o.done) return;
    if (!o.begun) {
      o.asked |= type;
      return;
    }
  }
  run_in(o, [&o, type] { emit(o, type); });
}

// --- its end

void end(operation& o, std::exception_ptr thrown, bool dropped) noexcept {
  o.thrown = std::move(thrown);
  o.dropped = dropped;
  release(o, true);  // before anybody knows: OP5
  if (o.executors.load() != 0) untrack(o);
  {
    const lock_guard guard(o.lock);
    o.done = true;
    if (o.waiter != nullptr && o.waiter->claim(o.ticket, outcome::value)) o.claimed = o.waiter;
    o.waiter = nullptr;
  }
  // See IW4 of io_watch.hpp.
  if (o.claimed != nullptr && vigil::detail::io_watch::deliver_later(o)) return;
  deliver(o);
}

void deliver(operation& o) noexcept {
  if (vigil::detail::waiter* const w = std::exchange(o.claimed, nullptr)) {
    w->deliver(vigil::detail::turn::in_order);
  }
  release(o, false);
}

void look_again(operation& o) noexcept {
  vigil::detail::waiter* w = nullptr;
  {
    const lock_guard guard(o.lock);
    o.looks_again = true;
    if (o.waiter != nullptr && o.waiter->claim(o.ticket, outcome::value)) {
      w = std::exchange(o.waiter, nullptr);
    }
  }
  if (w != nullptr) w->deliver();
}

// --- the wait of its fiber

namespace {

// Until it is done, the limit or a stop ends the wait, or the limit is to be looked
// at again (`completed`, too).
ending wait_once(operation& o, const wait_limit& limit) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  vigil::detail::caller self(limit);
  const bool refused = self.may_not_wait();
  o.lock.lock();
  if (o.done || refused || std::exchange(o.looks_again, false)) {
    const bool stops = !o.done && refused;
    o.lock.unlock();
    return stops ? ending::stopped : ending::completed;
  }
  o.ticket = self.open();
  o.waiter = &self.self();
  ending how = ending::completed;
  try {
    how = ending_of(self.wait(o.ticket, vigil::detail::wait_reason::io, o.lock));
  } catch (const std::bad_alloc&) {
    // For a timer, which a limit that is over already does not need.
    how = limit.is_over() ? ending::cut : ending::no_memory;
  }
  const lock_guard guard(o.lock);
  o.waiter = nullptr;
  o.looks_again = false;
  return how;
}

// The same to a deadline that may move meanwhile, or be closed.
ending wait_once(operation& o, const wait_limit& limit, movable_deadline& moves) {
  const ending how = wait_once(o, limit.until(moves.wait_to(o)));
  if (moves.is_closed()) return how == ending::cut || !is_done(o) ? ending::cut : how;
  const bool has_moved = how == ending::cut && !moves.is_over();  // just before it came
  return has_moved ? ending::completed : how;
}

// OP2
void wait_for_handler(operation& o) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  for (;;) {
    vigil::detail::caller self(vigil::detail::caller::unstoppable);
    o.lock.lock();
    if (o.done) {
      o.lock.unlock();
      return;
    }
    o.ticket = self.open();
    o.waiter = &self.self();
    self.wait(o.ticket, vigil::detail::wait_reason::io, o.lock);
  }
}

void wait(operation& o, const wait_limit& limit, movable_deadline* moves, ended& e) {
  auto asked = cancellation_type_t::none;
  {
    const lock_guard guard(o.lock);
    if (o.done) return;
    o.begun = true;
    asked = o.asked;
  }
  if (asked != cancellation_type_t::none) cancel(o, asked);
  if (o.outside) {
    o.sched.outside.io_begins();
    if (o.watch != nullptr) o.watch->operation_begins();
  }
  do {
    e.how = moves != nullptr ? wait_once(o, limit, *moves) : wait_once(o, limit);
  } while (e.how == ending::completed && !is_done(o));
  if (moves != nullptr) {
    e.cut = moves->waited();
  } else if (e.how == ending::cut) {
    e.cut = timed_out_by(limit.is_relative() ? time_of::within : time_of::until);
  }
  const bool cancelled = e.how != ending::completed && !is_done(o);
  if (cancelled) {
    o.end_wanted.store(true);
    run_in(o, [] {});  // OP4
    if (o.outside && o.watch != nullptr) o.watch->operation_cancelled();
    wait_for_handler(o);
  }
  if (o.outside) {
    if (o.watch != nullptr) o.watch->operation_ends(cancelled);
    o.sched.outside.io_ends();
  }
}

// The function that the operation has left in its slot may have a copy of the executor,
// and so keep itself. Outside any emission of it.
void clear_slot(operation& o) noexcept {
  if (o.executors.load() == 0) return;
  const operation_section inside(o);
  o.signal.slot().clear();
}

}  // namespace

ended await_end(operation& o, const wait_limit& limit, movable_deadline* moves) {
  ended e;
  wait(o, limit, moves, e);
  clear_slot(o);
  e.dropped = o.dropped;
  e.thrown = std::move(o.thrown);
  return e;
}

void throw_ended(ending how, ::vigil::detail::cancel_node* under) {
  switch (how) {
    case ending::stopped:
      vigil::detail::throw_stopped(*vigil::detail::current_fiber());
    case ending::no_memory:
      throw std::bad_alloc();
    default:
      vigil::detail::throw_cancelled(*under);
  }
}

}  // namespace vigil::io::inline VIGIL_ABI::detail
