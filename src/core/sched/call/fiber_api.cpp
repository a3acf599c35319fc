// The functions that the templates of <vigil/fiber.hpp> call.
#include "core/machine/process_state.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/wait/case_table.hpp"
#include "core/sched/worker/fiber_entry.hpp"
#include "core/sched/worker/park_check.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sched/worker/turn_budget.hpp"

#include <vigil/error.hpp>
#include <vigil/fiber.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>

namespace VIGIL_PUBLIC {

using detail::current_fiber;
using detail::current_scheduler;
using detail::fiber_role;
using detail::lock_guard;
using detail::outcome;
using detail::require_fiber;
using detail::wait_reason;

namespace detail {

void throw_empty_function(const char* where) {
  throw std::invalid_argument(std::string(where) + ": the function is empty (null)");
}

new_fiber::new_fiber(const start_call& call,
                     const fiber_options& options,
                     std::size_t size,
                     std::size_t align,
                     const site& from) {
  scheduler* const s = call.sched != nullptr ? call.sched : current_scheduler();
  if (s == nullptr)
    refuse_without_runtime(call.name, "call it inside vigil::run, or use runtime::go");
  core_ = &s->make_fiber(options.stack_size, options.name, size, align, from, fiber_role::user);
}

new_fiber::~new_fiber() {
  if (core_ != nullptr) core_->sched->abandon(*core_);
}

void* new_fiber::room() const noexcept {
  return core_->body;
}

fiber_core* new_fiber::start(const body_table& table, bool detached) noexcept {
  fiber_core* const core = std::exchange(core_, nullptr);
  core->table = &table;
  // ordering: nobody else has the fiber yet.
  if (detached) {
    core->life.handle.store(detail::handle_state::detached, detail::order::relaxed);
  } else {
    core->life.owners.store(2, detail::order::relaxed);  // ordering: as above
  }
  core->sched->start(*core);
  return core;
}

namespace {

bool has_ended(const fiber_core& core) noexcept {
  // Pairs with the release in scheduler::finish().
  return core.life.has_ended.load(detail::order::acquire);
}

// Called when the handle is gone.
void release(fiber_core& core) noexcept {
  if (core.release()) detail::dispose(core);
}

// Whether a caller is inside join(). For a fiber that has ended the answer needs no lock.
bool is_joined(const fiber_core& core) noexcept {
  // ordering: set under the lock, and before has_ended, which publishes it.
  return core.joining.is_joined.load(detail::order::relaxed);
}

[[noreturn]] void throw_second_join() {
  throw wrong_place(
      "vigil::fiber::join: another fiber or thread joins this handle already, or one wait has it "
      "twice, and only one can have the result; who else waits for the end uses a wait_group or a "
      "channel");
}

// Ends a join without the result.
void take_out(fiber_core& core) noexcept VIGIL_REQUIRES(core.joining.lock) {
  core.joining.joiner = nullptr;
  core.joining.is_joined.store(false, detail::order::relaxed);  // ordering: in is_joined()
}

enum class join_end { ended, limit, refused };

// Waits until the fiber has ended, or for the caller's limit; refused if another caller
// waits for the same. Caller: has asked whether `self` may wait. After a wait that saw
// the end, is_joined stays set.
join_end wait_as_joiner(fiber_core& core, detail::caller& self) {
  core.joining.lock.lock();
  if (is_joined(core) || core.life.has_ended.load()) {
    const join_end result = is_joined(core) ? join_end::refused : join_end::ended;
    core.joining.lock.unlock();
    return result;
  }
  open_wait own;
  self.open(own);
  core.joining.joiner = &own;
  core.joining.is_joined.store(true, detail::order::relaxed);  // ordering: in is_joined()
  core.joining.lock.unlock();
  const outcome result = self.wait(own.opened, {wait_reason::join, &core}, [&]() noexcept {
    const lock_guard guard(core.joining.lock);
    take_out(core);
  });
  if (result == outcome::value) return join_end::ended;
  self.throw_if_ended(result);
  return join_end::limit;
}

// True if the fiber has ended. After a wait is_joined is still set, so that no other
// caller takes the result.
bool wait_to_join(fiber_core* core, const wait_limit& limit) {
  detail::check_join(core);
  if (has_ended(*core)) {
    if (is_joined(*core)) throw_second_join();
    return true;
  }
  if (limit.is_over()) return false;
  detail::caller self(limit);
  if (self.may_not_wait()) self.refuse("fiber::join");
  const join_end result = wait_as_joiner(*core, self);
  if (result == join_end::refused) throw_second_join();
  return result == join_end::ended;
}

// The handle stays, and may be joined again.
void leave_joinable(fiber_core* core) noexcept {
  // ordering: the fiber has ended, and the word is the caller's own.
  core->joining.is_joined.store(false, detail::order::relaxed);
}

}  // namespace

void check_join(const fiber_core* core) {
  if (core == nullptr) {
    throw wrong_place(
        "vigil::fiber::join: the handle is empty; it was joined, detached or moved "
        "from before");
  }
  if (core == current_fiber()) {
    throw wrong_place("vigil::fiber::join: a fiber cannot wait for its own end");
  }
}

bool wait_for_end(fiber_core* core, const wait_limit& limit) {
  const auto wait = [core](const wait_limit& l) { return wait_to_join(core, l); };
  if (!detail::in_turn(limit, wait)) return false;
  leave_joinable(core);
  return true;
}

void join(fiber_core* core, const wait_limit& limit) {
  detail::in_turn(limit, [core](const wait_limit& l) { return wait_to_join(core, l); });
}

// --- the case of on_join()

namespace {

fiber_core& fiber_of(const select_case& c) noexcept {
  return *static_cast<fiber_core*>(c.object);
}

bool look_join(select_case& c) noexcept {
  return has_ended(fiber_of(c)) && !is_joined(fiber_of(c));
}

case_lock lock_of_joining(void* object) noexcept {
  return case_lock(static_cast<fiber_core*>(object)->joining.lock);
}

bool poll_join(select_case& c, wake_list&) noexcept {
  return look_join(c);
}

bool enqueue_join(select_case& c) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  fiber_core& core = fiber_of(c);
  if (is_joined(core)) throw_second_join();
  core.joining.joiner = &detail::make_place<open_wait>(c);
  core.joining.is_joined.store(true, detail::order::relaxed);  // ordering: in is_joined()
  return true;
}

void retract_join(select_case& c, wake_list&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  take_out(fiber_of(c));
}

}  // namespace

// The handle keeps the fiber. A case that has won leaves is_joined set, as join() does.
constexpr case_table join_case_table = {
    wait_reason::join, 0, look_join, lock_of_joining, poll_join, enqueue_join, retract_join};

constexpr end_kind end_of_fiber = {
    &join_case_table,
    []() noexcept -> const void* { return static_cast<const fiber_core*>(current_fiber()); },
    [](void* f, const wait_limit& l) { return wait_for_end(static_cast<fiber_core*>(f), l); },
    [](void* f) noexcept { leave_joinable(static_cast<fiber_core*>(f)); }};

void detach(fiber_core* core) {
  if (core == nullptr) {
    throw wrong_place("vigil::fiber::detach: the handle is empty");
  }
  // The second of the two, this and the fiber's end, takes care of what is left.
  if (core->life.handle.exchange(detail::handle_state::detached) == detail::handle_state::ended) {
    detail::drop_outcome(*core);
  }
  release(*core);
}

void request_stop(fiber_core* core) noexcept {
  // Sets the flag first, then looks for an open wait; the fiber opens its wait first and
  // then looks at the flag.
  core->stop_flag.store(true);
  if (core->own_waiter.claim_stop()) core->own_waiter.deliver();
}

namespace {

[[noreturn]] void destroyed_while_joined(const fiber_core& core) noexcept {
  detail::fatal(
      "%s: its handle is destroyed while another fiber or thread joins it; the owner of the handle "
      "joins it, or waits until the other one has",
      fiber_words(core.identity).text());
}

}  // namespace

void stop_and_join(fiber_core* core) noexcept {
  if (has_ended(*core)) {
    if (is_joined(*core)) destroyed_while_joined(*core);
  } else {
    detail::process_check_fork("the end of a joining handle");
    const fiber_core* const self = current_fiber();
    // std::exit was called on this fiber: it does not return, so the fiber never ends.
    if (self == core && detail::process_is_exiting()) return;
    request_stop(core);
    if (self == core) {
      detail::fatal(
          "%s destroys its own last handle, which would wait for the "
          "fiber's end for ever: detach() it first, or let another fiber own it",
          fiber_words(core->identity).text());
    }
    if (self != nullptr) detail::check_may_park(*self);
    if (self == nullptr && detail::current_worker() != nullptr) {
      detail::fatal(
          "%s: its last handle dies on a worker's own stack, inside a handler of the "
          "library, where nothing may wait for the fiber's end: join() or detach() it first, or "
          "let a fiber own it",
          fiber_words(core->identity).text());
    }
    // A joining destructor waits: only the child's end ends this wait.
    detail::caller waits(detail::caller::unstoppable);
    if (wait_as_joiner(*core, waits) == join_end::refused) {
      destroyed_while_joined(*core);
    }
  }
  detail::drop_outcome(*core);
  release(*core);
}

std::uint64_t id_of(const fiber_core* core) noexcept {
  return core->identity.id;
}

ended_fiber::ended_fiber(fiber_core* core) : core_(core) {
  if (core == nullptr) {
    throw wrong_place(
        "vigil::fiber::join: the handle was detached or moved from while it was joined");
  }
  if (core->ending.error == nullptr && !core->ending.by_stop) return;
  // There is no result, and a constructor that throws has no destructor.
  const std::exception_ptr error = std::exchange(core->ending.error, nullptr);
  const bool by_shutdown = core->ending.by_shutdown;
  if (error != nullptr && core->ending.on_unhandled != nullptr) release(core->ending.on_unhandled);
  release(*core);
  if (error != nullptr) std::rethrow_exception(error);
  throw cancelled(std::make_error_code(std::errc::operation_canceled),
                  "vigil::fiber::join: the fiber was asked to stop before it had a result",
                  nullptr,
                  by_shutdown);
}

ended_fiber::~ended_fiber() {
  core_->table->destroy_result(core_->body);
  release(*core_);
}

void* ended_fiber::result() const noexcept {
  return core_->table->result(core_->body);
}

void* find_local(const void* key) {
  const fiber_core& self = require_fiber("fiber_local");
  for (const detail::fiber_local_slot* s = self.locals; s != nullptr; s = s->next) {
    if (s->key == key) return s->value;
  }
  return nullptr;
}

void add_local(const void* key, void* value, void (*destroy)(void*) noexcept) {
  fiber_core& self = require_fiber("fiber_local");
  self.locals = new detail::fiber_local_slot{key, value, destroy, self.locals};
}

}  // namespace detail

namespace this_fiber {

void yield() {
  detail::worker* const w = detail::current_worker();
  if (w == nullptr || w->current == nullptr) require_fiber("this_fiber::yield");
  detail::fiber& self = *w->current;
  if (self.guards.no_parks != 0 || self.sched->state.must_stop(self)) {
    const detail::caller yields;
    if (yields.may_not_wait()) yields.refuse("this_fiber::yield");
  }
  detail::about_to_leave(self, detail::wait_reason::none);
  w->yield();
}

std::uint64_t id() noexcept {
  const detail::fiber* const f = current_fiber();
  return f == nullptr ? 0 : f->identity.id;
}

std::string_view name() noexcept {
  const detail::fiber* const f = current_fiber();
  return f == nullptr ? std::string_view{} : std::string_view(f->identity.name);
}

void set_name(std::string_view text) {
  require_fiber("this_fiber::set_name").set_name(text);
}

bool stop_requested() noexcept {
  const detail::fiber* const f = current_fiber();
  return f != nullptr && f->sched->state.must_stop(*f);
}

namespace {

detail::guard_owner owner_of(const detail::fiber& f) noexcept {
  return {f.identity.id, static_cast<std::uint32_t>(f.sched->number()), f.guards.ended};
}

// Returns the calling fiber, which must be the one that made the guard.
detail::fiber& fiber_of(const detail::guard_owner& owner, const char* guard) noexcept {
  detail::fiber* const f = current_fiber();
  if (f != nullptr && owner_of(*f) == owner) return *f;
  constexpr const char* advice =
      "such a guard lives and dies on one fiber, and within one callback: make it a local variable "
      "there";
  if (f != nullptr) {
    detail::fatal(
        "a this_fiber::%s that fiber %llu of runtime %u has made ends on %s of "
        "runtime %llu%s: %s",
        guard,
        static_cast<unsigned long long>(owner.fiber),
        owner.runtime,
        detail::fiber_words(f->identity).text(),
        static_cast<unsigned long long>(f->sched->number()),
        f->identity.id == owner.fiber && f->guards.ended != owner.callback
            ? ", which has run other callbacks since"
            : "",
        advice);
  }
  char call[64];
  std::snprintf(call, sizeof call, "the end of a this_fiber::%s", guard);
  detail::process_check_fork(call);
  detail::fatal("a this_fiber::%s that fiber %llu of runtime %u has made ends outside a fiber: %s",
                guard,
                static_cast<unsigned long long>(owner.fiber),
                owner.runtime,
                advice);
}

}  // namespace

pin::pin() : owner_(owner_of(require_fiber("this_fiber::pin"))) {
  detail::fiber& self = *current_fiber();
  if (self.guards.pins++ == 0) self.pinned = detail::current_worker();
}

pin::~pin() {
  detail::fiber& self = fiber_of(owner_, "pin");
  if (--self.guards.pins == 0) self.pinned = nullptr;
}

shield::shield() : owner_(owner_of(require_fiber("this_fiber::shield"))) {
  ++current_fiber()->guards.shields;
}

shield::~shield() {
  --fiber_of(owner_, "shield").guards.shields;
}

no_park::no_park() : owner_(owner_of(require_fiber("this_fiber::no_park"))) {
  ++current_fiber()->guards.no_parks;
}

no_park::~no_park() {
  --fiber_of(owner_, "no_park").guards.no_parks;
}

}  // namespace this_fiber

}  // namespace VIGIL_PUBLIC
