// pending: an operation (operation.hpp) that no fiber waits for all the time.
//
// PN1  The handler sets `done` and claims the wait in one step, under the operation's
//      lock; a wait, or a select, looks at `done` before it leaves its place there, under
//      the same lock. So a result that comes beside another event of a select either ends
//      that select or is there for the next one.
// PN2  One at a time waits (`awaited`), and only it may take the result then: a select
//      whose case has won finds it.
// PN3  The owner's values are written before `done`, and read after it was seen. The
//      owner goes only once its handler has run or has been destroyed.
#include "core/base/assert.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/idle/watch.hpp"
#include "core/sched/wait/case_table.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "io/operation.hpp"

#include <vigil/error.hpp>
#include <vigil/io/detail/pending.hpp>

#include <exception>
#include <stdexcept>
#include <utility>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;
using vigil::detail::fiber;  // not the handle

namespace {

bool is_in_its_run(const operation& o) noexcept {
  const fiber* const f = current_fiber();
  return f != nullptr && f->sched->number() == o.run;
}

// Throws wrong_place where the caller could not wait for the operation.
void check_may_wait_for(operation& o) {
  static_cast<void>(fiber_that_may_wait());
  if (!is_in_its_run(o)) {
    throw wrong_place(
        "vigil::io::pending: it belongs to another run, or has outlived its own; it must be "
        "waited for, and destroyed, in the run in which it began");
  }
  check_is_not_run_here(o);
}

void check_is_not_awaited(operation& o) VIGIL_REQUIRES(o.lock) {
  if (!o.awaited) return;
  throw wrong_place(
      "vigil::io::pending: it is waited for already, by another fiber or by another case of the "
      "same select; one at a time may");
}

// The caller is the one that waits from now on. Throws wrong_place.
void pending_enter(operation& o) {
  const lock_guard guard(o.lock);
  check_is_not_awaited(o);
  o.awaited = true;
}

void pending_leave(operation& o) noexcept {
  const lock_guard guard(o.lock);
  o.awaited = false;
}

// --- the case

operation& operation_of(void* object) noexcept {
  return *static_cast<operation*>(object);
}

operation& operation_of(const select_case& c) noexcept {
  return operation_of(c.object);
}

bool takes_result(operation& o) noexcept VIGIL_REQUIRES(o.lock) {
  return o.done && !std::exchange(o.taken, true);
}

bool look_result(select_case& c) noexcept {
  operation& o = operation_of(c);
  const lock_guard guard(o.lock);
  return !o.awaited && takes_result(o);
}

case_lock lock_of_result(void* object) noexcept {
  return case_lock(operation_of(object).lock);
}

bool poll_result(select_case& c, wake_list&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  return takes_result(operation_of(c));
}

bool enqueue_result(select_case& c) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  auto& place = make_place<open_wait>(c);
  operation& o = operation_of(c);
  if (!o.done) o.waiting = &place;  // done: the result was taken
  return true;
}

void end_result(select_case& c) noexcept {
  operation& o = operation_of(c);
  const lock_guard guard(o.lock);
  VIGIL_ASSERT(!o.taken, "a result is taken by the select that waits for it, or by nobody");
  o.taken = true;
}

void retract_result(select_case& c, wake_list&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  operation_of(c).waiting = nullptr;
}

// The states of select_case::amount.
enum : std::int64_t { not_begun, has_it, waits_for_it };

nanos begin_result(select_case& c, bool waits) {
  operation& o = operation_of(c);
  if (c.amount == not_begun) {
    if (waits) check_may_wait_for(o);
    pending_enter(o);
    c.amount = has_it;
  }
  if (waits && c.amount == has_it && !is_done(o)) {
    counted_wait::begin(o);
    c.amount = waits_for_it;
  }
  return never;
}

void leave_result(select_case& c) noexcept {
  operation& o = operation_of(c);
  if (c.amount == waits_for_it) counted_wait::end(o, false);
  pending_leave(o);
}

}  // namespace

constexpr case_table pending_case_table = {wait_reason::io,
                                           0,
                                           look_result,
                                           lock_of_result,
                                           poll_result,
                                           enqueue_result,
                                           retract_result,
                                           end_result,
                                           begin_result,
                                           nullptr,
                                           leave_result};

// --- the owner

void pending_begun(operation& o) noexcept {
  has_begun(o);
}

bool pending_is_ready(operation& o) noexcept {
  const lock_guard guard(o.lock);
  return o.done && !o.taken;
}

void pending_cancel(operation& o) noexcept {
  if (!is_done(o)) ask_to_end(o);
}

namespace {

// Under one lock: a fiber whose wait is over, but which has not gone on yet, has the
// result (PN2).
bool has_result(operation& o) {
  const lock_guard guard(o.lock);
  if (o.done) check_is_not_awaited(o);
  return o.done;
}

}  // namespace

bool pending_wait(operation& o, const wait_limit& limit) {
  class one_waits {
   public:
    explicit one_waits(operation& of) : of_(of) { pending_enter(of_); }

    one_waits(const one_waits&) = delete;
    one_waits& operator=(const one_waits&) = delete;

    ~one_waits() { pending_leave(of_); }

   private:
    operation& of_;
  };

  if (has_result(o)) return true;
  check_may_wait_for(o);
  const kept_limit kept(limit.absolute());
  const one_waits here(o);
  const counted_wait counted(o);
  for (;;) {
    const ending result = wait_once(o, kept.limit);
    if (is_done(o)) return true;
    if (result == ending::cut) return false;
    if (result != ending::completed) throw_ended(result, limit.cancelled_by);
  }
}

void pending_take(operation& o) {
  const lock_guard guard(o.lock);
  check_is_not_awaited(o);
  if (o.done && !std::exchange(o.taken, true)) return;
  throw std::logic_error("vigil::io::pending: its result was taken before");
}

ended pending_ended(operation& o) noexcept {
  ended e;
  e.dropped = o.dropped;
  e.thrown = std::move(o.thrown);
  return e;
}

bool pending_end(operation& o, ended& over) noexcept {
  bool awaited = false;
  {
    const lock_guard guard(o.lock);
    awaited = o.awaited;
  }
  if (awaited) {
    fatal(
        "vigil::io::pending: it is destroyed while another fiber waits for it; it must outlive "
        "each select and each wait");
  }
  if (!is_done(o)) {
    if (!is_in_its_run(o)) {
      fatal(
          "vigil::io::pending: it is destroyed outside the run in which it began, while its "
          "operation is open; destroy it on a fiber of that run");
    }
    check_may_park(*current_fiber());
    if (is_run_here(o)) {
      fatal(
          "vigil::io::pending: it is destroyed inside a handler of an io_context that this very "
          "fiber runs (run, poll), while its operation is open, and would wait for its end; "
          "destroy it elsewhere");
    }
    counted_wait counted(o);
    ask_to_end(o);
    counted.is_cancelled();
    wait_for_handler(o);
  }
  clear_slot(o);
  over = pending_ended(o);
  const lock_guard guard(o.lock);
  return !std::exchange(o.taken, true);
}

void pending_lost(std::exception_ptr thrown) noexcept {
  const char* const what =
      thrown != nullptr
          ? "vigil::io::pending: the result of an operation is lost, because the move of its "
            "values threw, and the pending was destroyed before it was taken"
          : "vigil::io::pending: the result of a successful operation is lost, because the pending "
            "was destroyed before it was taken; take it, or give on_lost() a function";
  if (current_fiber() == nullptr || !handlers_are_caught()) {
    warn("%s", what);
    return;
  }
  if (thrown == nullptr) thrown = std::make_exception_ptr(std::runtime_error(what));
  report_of_handler(std::move(thrown));
}

}  // namespace VIGIL_IO_DETAIL
