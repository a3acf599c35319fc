#include "core/sched/worker/fiber_entry.hpp"

#include "core/machine/process_state.hpp"
#include "core/sched/fiber/stack_sampler.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sched/worker/unhandled.hpp"

#include <vigil/error.hpp>

#include <exception>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

// Runs a fiber's function, and catches no exception but those that end it silently. For a
// fiber that nobody joins, without an on_unhandled, nothing that takes every exception
// stands between the user's code and the bottom of the stack, neither a catch (...) nor a
// noexcept function: an exception that nobody catches ends the program where it was
// thrown, as on a std::thread, and a core file shows that stack.
void run_open(fiber& self) {
  try {
    self.table->run(self.body);
  } catch (const stopped&) {
    self.ending.by_stop = true;
  } catch (const cancelled& e) {
    if (!self.sched->state.ends_silently(self, e)) throw;
    self.ending.by_shutdown = self.sched->state.is_by_my_end(e);
    self.ending.by_stop = true;
  } catch (const deadlock& e) {
    if (!self.sched->state.ends_silently(e)) throw;
    self.ending.by_stop = true;
  }
}

// The same for a fiber that may be joined, or whose exception goes to on_unhandled.
[[gnu::always_inline]] inline void run_catching(fiber& self) noexcept {
  try {
    run_open(self);
  } catch (...) {
    self.ending.error = std::current_exception();
    if (self.ending.on_unhandled != nullptr) retain(self.ending.on_unhandled);
  }
}

}  // namespace

void fiber_entry(void* argument) {
  auto& self = *static_cast<fiber*>(argument);
  worker::arrived();
  self.has_run = true;
  const bool is_ours = self.role == fiber_role::runner || self.role == fiber_role::timer;
  const bool is_detached = self.life.handle.load() == handle_state::detached;
  if (is_ours || (is_detached && self.ending.on_unhandled == nullptr)) {
    run_open(self);
  } else {
    run_catching(self);
  }
  self.destroy_locals();
  // The second of the two, this and detach(), sees the other and takes care of
  // the result or the exception. `detached` is never taken back.
  if (self.life.handle.load() == handle_state::detached ||
      self.life.handle.exchange(handle_state::ended) == handle_state::detached) {
    drop_outcome(self);
  }
  // The last code of the user's has run on the fiber.
  if (self.deferred != nullptr) [[unlikely]]
    self.sched->timers().release_deferred(self);
  if (self.own_stack.is_measured) [[unlikely]] {
    if (stack_sampler* const s = installed_sampler.load()) s->end(self);
  }
  worker* const w = current_worker();
  if (w == nullptr) process_check_fork("the end of a fiber");
  self.sched->finish(self);
  w->leave_for_ever_to_end();
}

void drop_outcome(fiber& f) noexcept {
  if (f.ending.error != nullptr) {
    report_finally(f, std::exchange(f.ending.error, nullptr));
    if (f.ending.on_unhandled != nullptr) release(f.ending.on_unhandled);
  } else if (!f.ending.by_stop) {
    f.table->destroy_result(f.body);
  }
}

void dispose(fiber& f) noexcept {
  const stack where = f.own_stack.whole;
  f.side.destroy();
  f.~fiber();
  if (worker* const w = current_worker()) {
    w->stacks.give(where);
  } else {
    release_stack(where);
  }
}

}  // namespace VIGIL_DETAIL
