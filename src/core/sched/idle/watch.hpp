// watch: the one place where an idle worker waits for everything at once:
// deadlines, wake-ups, and, in watches that know I/O, descriptors. At most one
// worker is in it, the watcher; other idle workers sleep on their own notes.
//
// There are several: futex_watch here, and portable_watch, which needs no futex; one over
// epoll and timerfd in the tests; one inside an io_context in vigil-io.
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/wait/note.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/shared_call.hpp>

#include <exception>
#include <memory>

namespace VIGIL_DETAIL {

class io_watch;

// For a watch that runs handlers of the program on its worker's own stack, outside any
// fiber. An exception that leaves a handler is caught only if there is an on_unhandled,
// and given to it; one that leaves that ends the program.
VIGIL_FOR_IO bool handlers_are_caught() noexcept;
VIGIL_FOR_IO void report_of_handler(std::exception_ptr error) noexcept;
// The calling thread runs handlers in place of a worker, from now on: they wait for
// nothing, and their exceptions go to this function, if it is not null. Caller: keeps it.
void thread_runs_handlers(call_box<void(std::exception_ptr)>* on_unhandled) noexcept;
bool is_handlers_thread() noexcept;

class watch {
 public:
  virtual ~watch() = default;

  // A run begins, and has ended: no worker is in the watch. A watch that is made during a
  // run has begun it.
  virtual void run_begins() noexcept {}

  virtual void run_ends() noexcept {}

  // Forgets earlier interrupts. Caller: the worker that is about to wait,
  // before it publishes that it sleeps.
  virtual void prepare() noexcept = 0;

  // Waits until the deadline, until interrupt() has been called since
  // prepare(), or until I/O made something ready. May return early; the caller
  // looks at the clock itself.
  virtual void wait_until(nanos deadline) noexcept = 0;

  // Ends the wait. Any thread, any number of times. Returns whether it made a
  // system call.
  virtual bool interrupt() noexcept = 0;

  // The same, but async-signal-safe. Without a futex it may take some milliseconds.
  virtual bool interrupt_in_handler() noexcept { return interrupt(); }

  // Brings the deadline of the present wait forward, if the watch's timer can be set from
  // outside: true if it has. Otherwise the caller interrupts. Any thread. The worker
  // cannot leave meanwhile (it needs the caller's lock), but it may still be on its way
  // in: of all deadlines since prepare() the earliest counts.
  virtual bool earlier(nanos deadline) noexcept {
    static_cast<void>(deadline);
    return false;
  }

  // Takes in what is ready, without waiting. Busy workers call it now and then
  // if needs_poll() says so: each 61st turn, and at the first switch after
  // tuning::longest_look.
  virtual void poll() noexcept {}

  virtual bool needs_poll() const noexcept { return false; }

  // Whether there can ever be something to poll for.
  virtual bool knows_io() const noexcept { return false; }

  // The worker that was in wait_until() counts as awake now: what became ready
  // meanwhile is handed out here, so that it wakes nobody for what this worker
  // is about to take itself.
  virtual void after_wait() noexcept {}

  // Whether it takes this watch of the layer of I/O in, so that a thread of its own waits
  // there. Throws std::system_error.
  virtual bool take_in(std::unique_ptr<watch>& io) {
    static_cast<void>(io);
    return false;
  }

  // This watch, or the one that it has taken in, if the layer of I/O has made it;
  // otherwise nullptr.
  virtual io_watch* as_io_watch() noexcept { return nullptr; }
};

// A note. Knows no I/O.
template <class Note>
class note_watch final : public watch {
 public:
  void prepare() noexcept override { note_.clear(); }

  void wait_until(nanos deadline) noexcept override { note_.sleep_until(deadline); }

  bool interrupt() noexcept override { return note_.wake(); }

  bool interrupt_in_handler() noexcept override { return note_.wake(waker::signal_handler); }

 private:
  Note note_;
};

// The default; over a futex, unless the build says otherwise (base/words.hpp).
using futex_watch = note_watch<note>;
// Over a mutex and a condition variable.
using portable_watch = note_watch<basic_note<portable_words>>;

}  // namespace VIGIL_DETAIL
