#include "core/task/task_core.hpp"

#include "core/base/assert.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/process/process_terminate.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/wait/case_table.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sched/worker/turn_budget.hpp"
#include "core/sync/take_or_wait.hpp"
#include "core/task/task_service.hpp"

#include <vigil/error.hpp>
#include <vigil/task.hpp>

#include <iterator>
#include <utility>

namespace VIGIL_DETAIL {

namespace {

task_core& core_of(running_task& t) noexcept {
  return static_cast<task_core&>(t);
}

// The function that a task's waiter calls when it is delivered.
void resume_task_soon(void* frame) noexcept {
  auto& t = *static_cast<task_core*>(frame);
  // TK1. Pairs with the exchange in task_service::run_until_it_waits().
  const auto before = t.park.exchange(task_core::park_word::woken, order::acq_rel);
  if (before == task_core::park_word::suspended) t.service.make_ready(t);
}

}  // namespace

task_core::task_core(task_service& of,
                     std::coroutine_handle<> first,
                     task_frame& f,
                     bool detached,
                     const site& from) noexcept
    : owners(detached ? 1 : 2),
      is_detached(detached),
      own_waiter(&resume_task_soon, this),
      service(of),
      outermost(first),
      frame(f),
      made_at(from) {
  next = first;
}

bool task_core::must_stop() const noexcept {
  return service.sched().state.stopping() || stop_flag.load();
}

// The flag first, then a look for an open wait; the task, or its runner, opens the wait
// first and then looks at the flag. Under the lock the task does not end, so the service
// is there.
void task_core::request_stop() noexcept {
  const lock_guard guard(lock());
  if (has_ended.load()) return;
  stop_flag.store(true);
  service.stop_runner_of(*this);
  if (own_waiter.claim_stop()) own_waiter.deliver();
}

// False if it has ended before.
bool task_core::detach() noexcept {
  const lock_guard guard(lock());
  if (has_ended.load()) return false;
  is_detached = true;
  return true;
}

bool task_core::is_last_owner() noexcept {
  // Pairs with the other decrement: the last one sees all that was done.
  return owners.fetch_sub(1, order::acq_rel) == 1;
}

void task_core::release() noexcept {
  if (!is_last_owner()) return;
  outermost.destroy();
  delete this;
}

spinlock& task_core::lock() const noexcept {
  static spinlock locks[]{spinlock(lock_rank::fiber_join),
                          spinlock(lock_rank::fiber_join),
                          spinlock(lock_rank::fiber_join),
                          spinlock(lock_rank::fiber_join)};
  return locks[id % std::size(locks)];
}

void task_core::note_handler(unhandled_box* of_runtime) noexcept {
  on_unhandled = of_runtime;
  if (frame.error != nullptr && of_runtime != nullptr) retain(of_runtime);
}

// Reports an exception that nobody will take, as options::on_unhandled says.
void task_core::report() noexcept {
  const std::exception_ptr error = std::exchange(frame.error, nullptr);
  try {
    if (on_unhandled != nullptr) {
      (*on_unhandled)(error);
      detail::release(on_unhandled);
      return;
    }
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    end_by(e.what());
  } catch (...) {
    end_by("an exception that is no std::exception");
  }
}

void task_core::show(fiber_view& s) const noexcept {
  s = {};
  s.id = id;
  s.task = this;
  s.sched = &service.sched();
  s.runtime = s.sched->number();
  s.has_others = runtimes_running.load() > 1;
  s.file = made_at.file;
  s.line = made_at.line();
  s.stop_requested = stop_flag.load();
  switch (park.load()) {
    case park_word::running:
      s.state = fiber_state::running;
      return;
    case park_word::woken:
      s.state = fiber_state::runnable;
      return;
    case park_word::suspended:
      break;
  }
  s.state = fiber_state::parked;
  // ordering: for the reader's eyes, these three.
  s.reason = reason.load(order::relaxed);
  s.object = object.load(order::relaxed);
  s.since = since.load(order::relaxed);
  s.runs = static_cast<std::uint32_t>(own_waiter.last());
  if (s.reason == wait_reason::none) s.state = fiber_state::running;  // since that look
}

// `what` has left the task, or on_unhandled.
void task_core::end_by(const char* what) const noexcept {
  warn("%s task %llu (started at %s:%u), which nobody joins: %s",
       on_unhandled != nullptr ? "options::on_unhandled has thrown what it was given of"
                               : "an exception has left",
       static_cast<unsigned long long>(id),
       made_at.file,
       made_at.line(),
       what);
  process_note_end_named();
  std::terminate();
}

void task_core::fatal_here(const char* what) const noexcept {
  fatal("task %llu (started at %s:%u) %s",
        static_cast<unsigned long long>(id),
        made_at.file,
        made_at.line(),
        what);
}

// --- the functions that the templates call

task_core* start_task(std::coroutine_handle<> outermost,
                      task_frame& frame,
                      bool detached,
                      const site& from) {
  scheduler* const s = current_scheduler();
  if (s == nullptr)
    refuse_without_runtime("vigil::go, vigil::spawn", "start the task on a fiber or in a task");
  return task_service::of(*s).start(outermost, frame, detached, from);
}

void end_task(running_task& task) noexcept {
  core_of(task).wanted = task_core::step::end;
}

bool has_ended(const task_core& t) noexcept {
  // Pairs with the release in task_service::finish().
  return t.has_ended.load(order::acquire);
}

namespace {

[[noreturn]] void throw_second_task_join() {
  throw wrong_place(
      "vigil::task_handle::join: another fiber, task or thread joins this handle already, or "
      "one wait has it twice, and only one can have the result");
}

// True if the task, which is not the caller's own, has ended.
bool wait_for_other(task_core& t, const wait_limit& limit) {
  return in_turn(limit, [&t](const wait_limit& l) {
    select_case end(task_join_table, &t);
    return take_or_wait(end, l, "task_handle::join");
  });
}

}  // namespace

void throw_empty_task() {
  throw wrong_place(
      "vigil::task: the task or the handle is empty; it was moved from, started, joined or "
      "detached before");
}

void check_task_join(task_core* t) {
  if (t == nullptr) throw_empty_task();
  if (!has_ended(*t) && t == task_of_caller()) {
    throw wrong_place("vigil::task_handle::join: a task cannot wait for its own end");
  }
}

bool wait_for_end(task_core* t, const wait_limit& limit) {
  check_task_join(t);
  return wait_for_other(*t, limit);
}

void request_stop(task_core& t) noexcept {
  t.request_stop();
}

std::uint64_t id_of(const task_core& t) noexcept {
  return t.id;
}

void rethrow_error(task_core& t) {
  if (t.frame.error != nullptr) {
    if (t.on_unhandled != nullptr) release(t.on_unhandled);
    std::rethrow_exception(std::exchange(t.frame.error, nullptr));
  }
  if (t.ended == task_core::ending::by_itself) return;
  throw cancelled(std::make_error_code(std::errc::operation_canceled),
                  "vigil::task_handle::join: the task was asked to stop before it had a result",
                  nullptr,
                  t.ended == task_core::ending::by_shutdown);
}

void let_go(task_core* t, bool joined) noexcept {
  if (!joined) {
    if (t->detach()) {
      t->release();
      return;
    }
    if (t->frame.error != nullptr) t->report();
  }
  t->release();
}

void stop_and_join(task_core* t) noexcept {
  if (!has_ended(*t)) {
    detail::process_check_fork("the end of a joining handle");
    t->request_stop();
    if (t == task_of_caller()) {
      t->fatal_here(
          "destroys its own last handle, which would wait for the task's end for ever: detach() it "
          "first, or let another task own it");
    }
    if (current_fiber() == nullptr && current_worker() != nullptr) {
      t->fatal_here(
          "has a last handle that dies on a worker's own stack, inside a handler of the library, "
          "where nothing may wait for the task's end");
    }
    if (const fiber* const f = current_fiber()) check_may_park(*f);
    try {
      select_case end(task_join_table, t);
      take_or_wait(end, no_limit, "", caller::unstoppable);
    } catch (const wrong_place&) {
      t->fatal_here(
          "has a handle that is destroyed while another fiber, task or thread joins it; the owner "
          "of the handle joins it, or waits until the other one has");
    }
  }
  let_go(t, false);
}

bool must_stop(const running_task& t) noexcept {
  return static_cast<const task_core&>(t).must_stop();
}

void yield_task(running_task& t) noexcept {
  core_of(t).wanted = task_core::step::yield;
}

void throw_task_stopped(running_task& t) {
  constexpr std::uint16_t most_stops = 1000;
  task_core& core = core_of(t);
  if (++core.stops_thrown > most_stops) {
    core.fatal_here(
        "has swallowed vigil::stopped 1000 times: a catch (...) must rethrow it or end the task, "
        "or the shutdown never ends");
  }
  throw stopped();
}

// --- the case of a join

namespace {

task_core& task_of(void* object) noexcept {
  return *static_cast<task_core*>(object);
}

case_lock lock_of_task(void* object) noexcept {
  return case_lock(task_of(object).lock());
}

bool look_task_join(select_case& c) noexcept {
  return has_ended(task_of(c.object));
}

bool poll_task_join(select_case& c, wake_list&) noexcept {
  return task_of(c.object).has_ended.load();
}

bool enqueue_task_join(select_case& c) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  task_core& t = task_of(c.object);
  if (t.joiner != nullptr) throw_second_task_join();
  t.joiner = &detail::make_place<open_wait>(c);
  return true;
}

void retract_task_join(select_case& c, wake_list&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  task_core& t = task_of(c.object);
  if (!t.has_ended.load() && t.joiner == &detail::place_of(c)) t.joiner = nullptr;
}

}  // namespace

constexpr case_table task_join_table = {wait_reason::join,
                                        0,
                                        look_task_join,
                                        lock_of_task,
                                        poll_task_join,
                                        enqueue_task_join,
                                        retract_task_join};

constexpr end_kind end_of_task = {
    &task_join_table,
    []() noexcept -> const void* { return task_of_caller(); },
    [](void* t, const wait_limit& l) { return wait_for_other(task_of(t), l); },
    [](void*) noexcept {}};

}  // namespace VIGIL_DETAIL
