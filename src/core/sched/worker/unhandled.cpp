#include "core/sched/worker/unhandled.hpp"

#include "core/base/assert.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/fiber/exception_words.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <exception>
#include <utility>

namespace VIGIL_DETAIL {

// A shield lets on_unhandled wait: a stop of the fiber does not concern it.
void report_unhandled(fiber& f, std::exception_ptr error) {
  if (f.ending.on_unhandled != nullptr) {
    struct shielded {
      fiber* const self = current_fiber();

      shielded() noexcept {
        if (self != nullptr) ++self->guards.shields;
      }

      ~shielded() {
        if (self != nullptr) --self->guards.shields;
      }
    } const shield;

    (*f.ending.on_unhandled)(std::move(error));
    return;
  }
  try {
    std::rethrow_exception(std::move(error));
  } catch (...) {
    warn("an exception has left %s, and nobody joins it: %s",
         fiber_words(f.identity, place_in_words(f.identity).text).text(),
         exception_words().text());
    process_note_end_named();
    std::terminate();
  }
}

namespace {

// Caller: a catch block for an exception that on_unhandled itself has thrown.
[[noreturn]] void end_by_on_unhandled(const char* given) noexcept {
  warn(
      "options::on_unhandled, which was given what has left %s, has thrown an exception itself: %s",
      given,
      exception_words().text());
  process_note_end_named();
  std::terminate();
}

}  // namespace

void report_finally(fiber& f, std::exception_ptr error) noexcept {
  try {
    report_unhandled(f, std::move(error));
  } catch (...) {
    end_by_on_unhandled(fiber_words(f.identity, place_in_words(f.identity).text).text());
  }
}

namespace {

// For handlers that a thread runs in place of a worker.
thread_local bool runs_handlers = false;
thread_local unhandled_box* on_unhandled_here = nullptr;

unhandled_box* on_unhandled_of_handlers() noexcept {
  const scheduler* const s = current_scheduler();  // none if a test drives the watch
  return s != nullptr ? s->settings().on_unhandled.box() : on_unhandled_here;
}

}  // namespace

void thread_runs_handlers(unhandled_box* on_unhandled) noexcept {
  runs_handlers = true;
  on_unhandled_here = on_unhandled;
}

bool is_handlers_thread() noexcept {
  return runs_handlers;
}

bool handlers_are_caught() noexcept {
  return on_unhandled_of_handlers() != nullptr;
}

void report_of_handler(std::exception_ptr error) noexcept {
  try {
    (*on_unhandled_of_handlers())(std::move(error));
  } catch (...) {
    end_by_on_unhandled("a handler of the io_context, run by a worker");
  }
}

}  // namespace VIGIL_DETAIL
