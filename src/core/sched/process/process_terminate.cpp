#include "core/sched/process/process_terminate.hpp"

#include "core/base/assert.hpp"
#include "core/base/atomic.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/fiber/exception_words.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/report/dump_extension.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/worker.hpp"

#include <vigil/error.hpp>

#include <cstdlib>
#include <exception>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

// The handlers that on_terminate() calls at its end; written under process_lock. A
// handler that the program has put on top of ours stays when the runs end, and may call
// ours, even when the next run has put ours on top again: the second call goes to what
// lay below both.
atomic<std::terminate_handler> below_ours{nullptr};
atomic<std::terminate_handler> below_both{nullptr};
bool below_another = false;  // guarded by process_lock; never taken back

// Says that an exception which nobody has caught ends the program. `who`: a fiber; or a
// handler, since on a worker's own stack Asio's code and the program's handlers are the
// only code that is not vigil's.
void name_uncaught(const char* who, const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const stopped&) {
    fatal(
        "vigil::stopped has left a noexcept function of %s. A wait in a noexcept function, "
        "destructors included, must be under this_fiber::shield",
        who);
  } catch (...) {
    warn("an exception has left %s, or a noexcept function there, and nobody catches it: %s",
         who,
         exception_words().text());
  }
}

// Those from which the exception was thrown, unless it was rethrown: nothing has been
// unwound yet.
void write_own_frames() noexcept {
  const dump_extension* const more = installed_extension.load();
  if (more == nullptr) return;
  dump_writer out(2);
  more->write_own_frames(out);
  out.flush();
}

[[noreturn]] void on_terminate() {
  const fiber* const f = current_fiber();
  if ((f != nullptr || current_worker() != nullptr) && !process_note_end_named()) {
    if (const auto error = std::current_exception()) {
      if (f != nullptr) {
        name_uncaught(fiber_words(f->identity, place_in_words(f->identity).text).text(), error);
      } else {
        name_uncaught("a handler of the io_context, run by a worker", error);
      }
      write_own_frames();
    }
  }
  thread_local bool again = false;
  const bool called_by_another = std::exchange(again, true);
  const std::terminate_handler earlier = (called_by_another ? below_both : below_ours).load();
  if (earlier != nullptr) earlier();
  std::abort();
}

}  // namespace

// Called for each run, not for the first alone: during another run, which still goes on,
// the program may have put a handler on top of ours.
void install_terminate() noexcept {
  const std::terminate_handler present = std::get_terminate();
  if (present == &on_terminate) return;
  if (runtimes_running.load() != 0) below_another = true;
  if (!below_another) below_both.store(present);
  below_ours.store(present);
  std::set_terminate(&on_terminate);
}

void remove_terminate() noexcept {
  if (std::get_terminate() == &on_terminate) {
    std::set_terminate(below_ours.exchange(below_both.load()));
  } else {
    below_another = true;
  }
}

}  // namespace VIGIL_DETAIL
