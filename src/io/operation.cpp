#include "io/operation.hpp"

#include "core/base/assert.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "io/io_watch.hpp"

#include <vigil/error.hpp>
#include <vigil/io/detail/movable_deadline.hpp>
#include <vigil/io/detail/shown_object.hpp>
#include <vigil/io/memory_executor.hpp>

#include <new>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/require.hpp>
#include <boost/asio/system_executor.hpp>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;
using vigil::detail::fiber;  // not the handle

using boost::asio::any_io_executor;
using boost::asio::cancellation_type_t;

namespace {

const boost::asio::io_context::executor_type* io_context_of(const any_io_executor& ex) noexcept {
  return ex.target<boost::asio::io_context::executor_type>();
}

using io_executor = boost::asio::io_context::executor_type;
// The type of a bound executor while its operation is open.
using tracked_io_executor = decltype(boost::asio::require(
    std::declval<io_executor>(), boost::asio::execution::outstanding_work.tracked));

bool is_run_here(const any_io_executor& ex) noexcept {
  if (const auto* const of = ex.target<io_executor>()) return of->running_in_this_thread();
  const auto* const of = ex.target<tracked_io_executor>();
  return of != nullptr && of->running_in_this_thread();
}

bool is_system(const any_io_executor& ex) noexcept {
  return !ex || ex.target<boost::asio::system_executor>() != nullptr;
}

}  // namespace

fiber& fiber_that_may_wait() {
  fiber* const f = current_fiber();
  if (f != nullptr) {
    check_may_park(*f);
    return *f;
  }
  process_check_fork("vigil::io::use_fiber");
  if (current_worker() != nullptr) {
    throw wrong_place(
        "vigil::io::use_fiber: it would have to wait inside a handler, on a worker's own stack; "
        "start a fiber with go, and wait there");
  }
  throw wrong_place(
      "vigil::io::use_fiber needs a fiber to wait: call it inside vigil::run, go or spawn, not "
      "on a plain thread nor in a handler");
}

// A fiber may run an io_context itself, but may not park inside one of its handlers.
void check_is_not_run_here(const any_io_executor& ex) {
  if (!is_run_here(ex)) return;
  throw wrong_place(
      "vigil::io::use_fiber: it would have to wait inside a handler of an io_context that this "
      "very fiber runs (run, poll); start a fiber with go, and wait there");
}

void deliver_in_order(waiter& claimed) noexcept {
  // See IW4 of io_watch.hpp.
  if (!io_watch::deliver_later(claimed)) {
    claimed.deliver(run_order::in_order);
  }
}

namespace {

bool is_in(const any_io_executor& ex, const io_watch& watch) {
  if (const auto* const of = io_context_of(ex)) return &of->context() == &watch.context();
  return &boost::asio::query(ex, boost::asio::execution::context) == &watch.context();
}

}  // namespace

operation& begin_operation(const any_io_executor& own,
                           const any_io_executor& bound,
                           bool inside,
                           const void* object) {
  fiber& self = fiber_that_may_wait();
  check_is_not_run_here(own);
  check_is_not_run_here(bound);
  io_watch* watch = self.sched->watches().present().as_io_watch();
  const bool in_context = io_context_of(own) != nullptr;
  if (watch != nullptr && (in_context || !is_system(own)) && !is_in(own, *watch) &&
      (!bound || !is_in(bound, *watch))) {
    watch = nullptr;
  }
  const bool outside = !inside && (in_context || own.target<memory_executor>() == nullptr);
  const bool anywhere = bound ? is_system(bound) : in_context || is_system(own);
  if (!bound)
    return *new operation{
        object, object, *self.sched, self.sched->number(), watch, anywhere, outside, own};
  // Keeps the bound context from running out of work until the operation is over.
  return *new operation{
      object,
      object,
      *self.sched,
      self.sched->number(),
      watch,
      anywhere,
      outside,
      boost::asio::prefer(bound, boost::asio::execution::outstanding_work.tracked)};
}

// --- references

void retain(operation& o, bool executor) noexcept {
  // The count goes from 0 to 1 for the handler at first, and later for a run_in() that
  // emits just after the operation has ended, and then finds that it has.
  // ordering: the caller already holds a reference.
  if (executor && o.executors.fetch_add(1, order::relaxed) != 0) return;
  o.references.fetch_add(1, order::relaxed);  // ordering: the same
}

void release(operation& o, bool executor) noexcept {
  if (executor) {
    // Pairs with itself, as below.
    if (o.executors.fetch_sub(1, order::acq_rel) != 1) return;
    any_io_executor over;
    const lock_guard guard(o.lock);
    over = std::move(o.executor);
  }
  // Pairs with itself: the last release sees what all others did.
  if (o.references.fetch_sub(1, order::acq_rel) == 1) delete &o;
}

namespace {

// Empty means any executor.
any_io_executor executor_in(operation& o) {
  const lock_guard guard(o.lock);
  return o.executor;
}

any_io_executor executor_or_system(operation& o) {
  if (any_io_executor ex = executor_in(o)) return ex;
  return boost::asio::system_executor();
}

// Makes the executor, which copies of the associated executor still need, count no work:
// a thread that runs until its context is out of work may return once the operation is
// over.
void untrack(operation& o) noexcept {
  any_io_executor ex = executor_in(o);
  if (!ex) return;
  try {
    ex = boost::asio::prefer(ex, boost::asio::execution::outstanding_work.untracked);
  } catch (...) {  // no memory: it counts work until the last copy is gone
    return;
  }
  const lock_guard guard(o.lock);
  if (o.executor) std::swap(ex, o.executor);
}

}  // namespace

bool is_run_here(operation& o) {
  return is_run_here(executor_in(o));
}

void check_is_not_run_here(operation& o) {
  check_is_not_run_here(executor_in(o));
}

any_io_executor executor_of(operation& o, bool posts) {
  if (posts) {
    return boost::asio::require(executor_or_system(o), boost::asio::execution::blocking.never);
  }
  return o.anywhere ? any_io_executor() : executor_or_system(o);
}

boost::asio::execution_context& context_of(operation& o) {
  return boost::asio::query(executor_or_system(o), boost::asio::execution::context);
}

// --- the section, and requests to end

namespace {

// Runs f on the operation's executor.
template <class F>
void run_in(operation& o, F f) noexcept {
  try {
    operation_executor<false>(o).execute(f);
  } catch (...) {
    // No memory to reach its executor: f runs here, which is the best that can be done.
    const operation_section inside(o);
    f();
  }
}

// Called in the section.
void emit(operation& o, cancellation_type_t type) noexcept {
  if (is_done(o)) return;
  try {
    o.signal->emit(type);
  } catch (const std::bad_alloc&) {
    // If it is to end, it is asked again after its next step.
  } catch (...) {
    fatal("an exception has left a cancellation handler of an operation of Asio's");
  }
}

// OP4
void ask_again(operation& o) noexcept {
  constexpr int answers = 16;  // each answer begins another step
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
  if (fiber* const f = current_fiber()) ++f->guards.no_parks;
}

operation_section::~operation_section() {
  operation& o = operation_;
  if (o.depth == 1) {
    ask_again(o);
  } else {
    o.answered = true;
  }
  if (fiber* const f = current_fiber()) --f->guards.no_parks;
  --o.depth;
  o.section.unlock();
  release(o, false);
}

void note_descriptor(operation& o, int descriptor) noexcept {
  const void* const shown = shown_descriptor(descriptor);
  o.object.store(shown != nullptr ? shown : o.given, order::relaxed);  // ordering: for dumps alone
}

boost::asio::cancellation_slot slot_of(operation& o) noexcept {
  return o.signal->slot();
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

// --- the end

void end(operation& o, std::exception_ptr thrown, bool dropped) noexcept {
  o.thrown = std::move(thrown);
  o.dropped = dropped;
  release(o, true);  // before the fiber learns of the end: OP5
  if (o.executors.load() != 0) untrack(o);
  set_done(o);
  release(o, false);
}

// --- the fiber's wait

namespace {

// How a deadline that moves reaches the fiber.
class limited_operation final : public limited_wait {
 public:
  explicit limited_operation(operation& o) noexcept : of_(o) {}

  waiter* look_again() noexcept override {
    const lock_guard guard(of_.lock);
    of_.looks_again = true;
    return claim(of_);
  }

 private:
  operation& of_;
};

// The same, with a deadline that may move or be closed meanwhile.
ending wait_once(operation& o,
                 const wait_limit& limit,
                 movable_deadline& moves,
                 limited_operation& own) {
  const ending result = wait_once(o, limit.until(moves.begin_wait(own)));
  if (moves.is_closed()) return result == ending::cut || !is_done(o) ? ending::cut : result;
  const bool has_moved = result == ending::cut && !moves.is_over();  // just before it passed
  return has_moved ? ending::completed : result;
}

}  // namespace

void has_begun(operation& o) noexcept {
  auto asked = cancellation_type_t::none;
  {
    const lock_guard guard(o.lock);
    if (o.done) return;
    o.begun = true;
    asked = o.asked;
  }
  if (asked != cancellation_type_t::none) cancel(o, asked);
}

void ask_to_end(operation& o) noexcept {
  o.end_wanted.store(true);
  run_in(o, [] {});  // OP4
}

void counted_wait::begin(operation& o) noexcept {
  if (!o.outside) return;
  o.sched.outside.io_begins();
  if (o.watch != nullptr) o.watch->operation_begins();
}

void counted_wait::is_cancelled() noexcept {
  cancelled_ = true;
  if (operation_.outside && operation_.watch != nullptr) operation_.watch->operation_cancelled();
}

void counted_wait::end(operation& o, bool was_cancelled) noexcept {
  if (!o.outside) return;
  if (o.watch != nullptr) o.watch->operation_ends(was_cancelled);
  o.sched.outside.io_ends();
}

namespace {

void wait(operation& o, const wait_limit& limit, movable_deadline* moves, ended& e) {
  has_begun(o);
  if (is_done(o)) return;
  counted_wait counted(o);
  limited_operation own(o);
  do {
    e.result = moves != nullptr ? wait_once(o, limit, *moves, own) : wait_once(o, limit);
  } while (e.result == ending::completed && !is_done(o));
  if (moves != nullptr) {
    e.cut = moves->end_wait(e.result == ending::cut);
  } else if (e.result == ending::cut) {
    e.cut = timed_out_by(limit.is_relative() ? time_of::within : time_of::until);
  }
  if (e.result == ending::completed || is_done(o)) return;
  ask_to_end(o);
  counted.is_cancelled();
  wait_for_handler(o);
}

}  // namespace

void clear_slot(operation& o) noexcept {
  if (o.executors.load() == 0) return;
  const operation_section inside(o);
  o.signal->slot().clear();
}

ended await_end(operation& o, const wait_limit& limit, movable_deadline* moves) {
  ended e;
  wait(o, limit, moves, e);
  clear_slot(o);
  e.dropped = o.dropped;
  e.thrown = std::move(o.thrown);
  return e;
}

}  // namespace VIGIL_IO_DETAIL
