#include "core/cancel/group_core.hpp"
#include "core/cancel/object_view.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sched/worker/turn_budget.hpp"
#include "core/sync/take_or_wait.hpp"

#include <vigil/error.hpp>
#include <vigil/group.hpp>

#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

namespace VIGIL_DETAIL {

// Locks, and keeps the lock only if a fiber is to start.
bool group_core::lock_to_start(const char* call) {
  lock_.lock();
  if (waited_for_) {
    lock_.unlock();
    throw std::logic_error(
        std::string(call) +
        ": the group has been waited for, and its context is done; make another group");
  }
  if (!ctx().is_done()) return true;
  lock_.unlock();
  fail_unstarted();
  return false;
}

// Notes that a function was not started, so that wait() says so, unless cancel() has
// ended the group: then that is what its owner wanted.
void group_core::fail_unstarted() noexcept {
  {
    const lock_guard guard(lock_);
    if (ended_by_cancel_) return;
  }
  fail(ctx().cause());
}

// Without a limit nothing is ever waited for.
bool group_core::take(const char* call) {
  if (limit_ == std::numeric_limits<std::size_t>::max()) return take_now(call);
  return in_turn(no_limit, [this, call](const wait_limit&) { return take_now(call); });
}

bool group_core::take_now(const char* call) {
  if (!lock_to_start(call)) return false;
  if (taken_ < limit_) {
    ++taken_;
    lock_.unlock();
    return true;
  }
  caller self(cancelled_by(ctx()));
  if (self.may_not_wait()) {
    lock_.unlock();
    self.refuse(call + std::string_view("vigil::").size());
  }
  queued_waiter w;
  self.open(w);
  for_place_.push_back(w);
  lock_.unlock();
  const outcome result = self.wait(w.opened, {wait_reason::group_place, &made_at_}, [&]() noexcept {
    const lock_guard guard(lock_);
    if (w.hook.linked) for_place_.remove(w);
  });
  if (result != outcome::value) {
    if (result == outcome::stopped) self.throw_if_ended(result);
    // As if the context had been done before the call.
    fail_unstarted();
    return false;
  }
  // GR3: the place is ours.
  if (!ctx().is_done()) return true;
  fail_unstarted();
  give();
  return false;
}

bool group_core::try_take(const char* call) {
  if (!lock_to_start(call)) return false;
  const bool has_room = taken_ < limit_;
  if (has_room) ++taken_;
  lock_.unlock();
  return has_room;
}

// Hands a place on (GR3). False if no fiber waits for one.
bool group_core::give_to_next(wake_list& claimed) noexcept {
  while (queued_waiter* const w = for_place_.pop_front()) {
    if (claimed.claim(*w, outcome::value)) return true;
  }
  return false;
}

void group_core::give() noexcept {
  wake_list claimed;
  {
    const lock_guard guard(lock_);
    if (!give_to_next(claimed) && --taken_ == 0) {
      while (queued_waiter* const w = for_end_.pop_front())
        claimed.claim(*w, outcome::value);
      while (queued_waiter* const w = selects_for_end_.pop_front()) {
        if (claimed.claim(*w, outcome::value)) waited_for_ = true;  // GR5
      }
      while (queued_waiter* const w = for_result_.pop_front())
        claimed.claim(*w, outcome::value);
    }
  }  // GR2
  claimed.deliver(run_order::next);
}

void group_core::run(call_ref f) noexcept {
  member self{current_fiber(), false, {}};
  {
    const lock_guard guard(lock_);
    self.is_asked = asked_to_stop_;
    running_.push_back(self);  // GR1
    if (self.is_asked) request_stop(self.self);
  }
  std::exception_ptr error;
  try {
    f();
  } catch (const stopped&) {
  } catch (const cancelled& e) {
    if (!is_by_cancel(e)) error = std::current_exception();
  } catch (...) {
    error = std::current_exception();
  }
  {
    const lock_guard guard(lock_);
    running_.remove(self);
  }
  // Out of the list, so that it does not ask itself to stop.
  if (error != nullptr) fail(std::move(error));
}

void group_core::fail(std::exception_ptr error) noexcept {
  {
    const lock_guard guard(lock_);
    if (error_ != nullptr) return;
    error_ = error;
  }
  cancel(error);
}

// Whether e says only what a stop says: that cancel() has ended the group.
bool group_core::is_by_cancel(const cancelled& e) noexcept {
  {
    const lock_guard guard(lock_);
    if (!ended_by_cancel_) return false;
  }
  return e.code() == ctx().error() && e.cause() == cancel_node_of(ctx())->cause();
}

void group_core::cancel(const std::exception_ptr& cause) noexcept {
  {
    const lock_guard guard(lock_);  // before the waits under the context end
    if (error_ == nullptr && !ctx().is_done()) ended_by_cancel_ = true;
  }
  made_.cancel(cause);
  while (ask_some_to_stop()) {
  }
}

// Asks a few fibers to stop (GR4). True if there may be more.
bool group_core::ask_some_to_stop() noexcept {
  const lock_guard guard(lock_);
  asked_to_stop_ = true;
  for (unsigned i = 0; i < asked_at_once; ++i) {
    member* const m = running_.front();
    if (m == nullptr || m->is_asked) return false;
    running_.remove(*m);
    m->is_asked = true;
    running_.push_back(*m);
    request_stop(m->self);
  }
  return true;
}

// False if the deadline came first.
bool group_core::wait(const wait_limit& limit, const char* call, bool last) {
  return in_turn(limit,
                 [this, call, last](const wait_limit& l) { return wait_now(l, call, last); });
}

bool group_core::wait_now(const wait_limit& limit, const char* call, bool last) {
  const kept_limit kept(limit.absolute());  // for all laps
  for (;;) {
    select_case end(ended_case_table, this);
    if (!take_or_wait(end, kept.limit, call)) return false;
    const lock_guard guard(lock_);
    if (taken_ != 0) continue;  // GR5
    waited_for_ = waited_for_ || last;
    return true;
  }
}

bool group_core::runs(const fiber* f) noexcept {
  const lock_guard guard(lock_);
  const member* m = running_.front();
  while (m != nullptr && m->self != f)
    m = list<member, &member::hook>::next(*m);
  return m != nullptr;
}

// Nothing ends this wait but the end of the last fiber.
void group_core::join() noexcept {
  select_case end(ended_case_table, this);
  if (end.table->look(end)) return;
  if (const fiber* const f = current_fiber()) check_may_park(*f);
  wait_for_case(end, no_limit, "", caller::unstoppable);
}

// Caller: nothing starts any more.
void group_core::finish() {
  std::exception_ptr error;
  {
    const lock_guard guard(lock_);
    error = error_;
    while (done_.pop_front() != nullptr) {  // wait() takes all results, or throws
    }
  }
  made_.cancel();
  if (error != nullptr) std::rethrow_exception(error);
}

// Caller: after finish(), so that the context is done.
void group_core::throw_unfinished() const {
  const cancel_node& node = *cancel_node_of(ctx());
  throw cancelled(ctx().error(),
                  "vigil::group_of::wait: a function of the group was stopped before it had a "
                  "result",
                  node.cause(),
                  node.state() == detail::cancel_state::shutdown);
}

// The group's members begin with `made_at_`: a group's address is that of its birth.
const std::size_t object_view::group_size = sizeof(group_core);

// --- what the templates call

group_core* make_group(const context& parent, std::size_t limit, const site& from) {
  return new group_core(with_cancel(parent, from), limit, from);
}

bool stop_and_join(group_core* g) noexcept {
  // std::exit on a fiber of the group: it does not return, and so the fiber never ends.
  if (process_is_exiting() && g->runs(current_fiber())) return false;
  g->cancel(nullptr);
  g->join();
  delete g;
  return true;
}

const context& context_of(const group_core* g) noexcept {
  return g->ctx();
}

bool take_place(group_core* g, const char* call) {
  return g->take(call);
}

bool try_take_place(group_core* g, const char* call) {
  return g->try_take(call);
}

// Destroys the fiber's fiber_local values first: the place is taken for them as well.
void give_place(group_core* g, bool has_run) noexcept {
  if (has_run) current_fiber()->destroy_locals();
  g->give();
}

void run_in_group(group_core* g, call_ref f) noexcept {
  g->run(f);
}

bool wait_for_end(group_core* g, const wait_limit& limit, const char* call) {
  return g->wait(limit, call, false);
}

void wait(group_core* g, const wait_limit& limit, const char* call) {
  g->wait(limit, call, true);
  g->finish();
}

void finish(group_core* g) {
  g->finish();
}

void throw_unfinished(const group_core* g) {
  g->throw_unfinished();
}

void cancel(group_core* g, const std::exception_ptr& cause) noexcept {
  g->cancel(cause);
}

}  // namespace VIGIL_DETAIL
