// io_watch: the watch inside an io_context.
//
//   an idle worker    wait_until(): sets the timerfd, then run_one()
//   any thread        earlier(): timerfd_settime; interrupt(): writes the eventfd
//   a busy worker     poll(): poll_one(), a bounded number
//
// io_alarm.hpp says how the worker gets out even when other threads run the io_context;
// IW6 of watch_service.hpp says how operations cancelled in a stopped one end.
//
// IW2  At most one worker of a runtime is in the io_context: `inside`. A worker that
//      finds it taken by a poll() sleeps on the note meanwhile; the poll wakes it.
// IW4  A handler only marks fibers. They are made ready once the worker has got up
//      (after_wait()), so that no worker is woken for a fiber that this one is about to
//      take itself.
// IW5  A worker on the note looks now and then, but only while fibers wait for
//      operations. It sets `on_note` before it reads their number; a fiber that counts
//      the first operation, or a cancelled one, reads `on_note` afterwards and wakes the
//      worker. All of it is sequentially consistent. A restart of the io_context does
//      the same afterwards.
// IW7  An exception that leaves a handler goes to on_unhandled, in the worker, and the
//      next handler runs. Without on_unhandled nothing catches it, and the unwinder takes
//      the frame of bottom_of_handlers() for the last one: so the program ends at the
//      throw, even though noexcept functions, and a main() that may catch, lie below.
// IW8  While the deadline moves often the timerfd is set a few milliseconds ahead, and
//      left alone. The worker that it wakes in vain, later, sets it to the deadline.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/idle/watch.hpp"
#include "core/sched/wait/note.hpp"
#include "io/io_alarm.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

#include <boost/asio/io_context.hpp>

namespace VIGIL_DETAIL {

class waiter;

class io_watch final : public watch {
 public:
  // Waits in the caller's io_context; throws std::invalid_argument if that is stopped.
  explicit io_watch(boost::asio::io_context& given);
  // Waits in an io_context that it owns.
  io_watch();
  ~io_watch() override;
  io_watch(const io_watch&) = delete;
  io_watch& operator=(const io_watch&) = delete;

  // IW10  A runtime holds the io_context, as a work guard does, from its construction
  //       until its run has ended, and then during each run. In between, the io_context
  //       may run out of work, so that the program's threads come back from run(). The
  //       next run restarts it then. One that was stopped when the last run ended stays
  //       stopped.
  void run_begins() noexcept override;
  void run_ends() noexcept override;
  void prepare() noexcept override;
  void wait_until(nanos deadline) noexcept override;

  bool interrupt() noexcept override { return interrupt(waker::thread); }

  bool interrupt_in_handler() noexcept override { return interrupt(waker::signal_handler); }

  bool earlier(nanos deadline) noexcept override;
  void poll() noexcept override;
  bool needs_poll() const noexcept override;

  bool knows_io() const noexcept override { return true; }

  void after_wait() noexcept override;

  io_watch* as_io_watch() noexcept override { return this; }

  boost::asio::io_context& context() const noexcept { return context_; }

  // Count operations that fibers wait for, and those of them that are being cancelled.
  void operation_begins() noexcept {
    if (operations_.fetch_add(1) == 0) look_again();
  }

  void operation_ends(bool was_cancelled) noexcept {
    operations_.fetch_sub(1);
    if (was_cancelled) cancelled_.fetch_sub(1);
  }

  // Called once the operation has been asked to end: a look then finds it ready.
  void operation_cancelled() noexcept {
    cancelled_.fetch_add(1);
    look_again();
  }

  long cancelled() const noexcept { return cancelled_.load(); }

  // --- called by the service of the io_context
  void context_restarted() noexcept { look_again(); }

  void context_gone() noexcept { alarm_->context_gone(); }

  // Called by a handler that has claimed a wait. Returns true if the calling thread is a
  // worker in wait_until(), which delivers the waiter when it has got up.
  static bool deliver_later(waiter& claimed) noexcept;

 private:
  io_watch(std::unique_ptr<boost::asio::io_context> own, boost::asio::io_context* given);

  template <class F>
  static std::size_t run(F f) noexcept;

  // IW5
  void look_again() noexcept {
    if (on_note_.load()) note_.wake();
  }

  bool interrupt(waker origin) noexcept;
  bool enter() noexcept;
  void leave() noexcept;
  void set_timer(nanos deadline) noexcept VIGIL_EXCLUDES(timer_lock_);
  void write_timer(nanos deadline) noexcept VIGIL_REQUIRES(timer_lock_);
  // Returns whether a handler has run; then the io_context was not stopped.
  //
  // IW9  After a handler that leaves nothing to do the worker stays for one more, and for
  //      a moment at most. Asio runs one that does nothing at each wait to read from a
  //      socket that async_connect has connected: for an event that nobody waits for. Any
  //      other one may have changed what only a look around shows (a backlog of handlers,
  //      a deadlock), so the worker gets up then.
  bool wait_inside() noexcept;
  bool is_called_out() const noexcept;
  static bool has_something_to_do() noexcept;
  void take_more() noexcept;
  void run_ready() noexcept;
  void sleep_outside(nanos deadline) noexcept;
  void end_cancelled() noexcept;

  const std::unique_ptr<boost::asio::io_context> own_;
  boost::asio::io_context& context_;
  const std::shared_ptr<io_alarm> alarm_;

  note note_;
  atomic<bool> interrupted_{false};
  atomic<bool> inside_{false};
  atomic<bool> on_note_{false};
  bool was_stopped_ = false;  // when the last run ended; for the next one
  std::uint32_t looks_ = 0;   // guarded by inside_
  int expected_ = 0;          // guarded by inside_: completions after the first
  atomic<long> operations_{0};
  atomic<long> cancelled_{0};

  spinlock timer_lock_{lock_rank::watch};
  nanos earliest_ VIGIL_GUARDED_BY(timer_lock_) = never;  // since prepare()
  nanos set_to_ VIGIL_GUARDED_BY(timer_lock_) = never;    // what the timerfd is set to
  nanos moved_at_ VIGIL_GUARDED_BY(timer_lock_) = 0;      // when it was set last
  bool usable_ VIGIL_GUARDED_BY(timer_lock_) = true;      // the worker is not on the note
};

}  // namespace VIGIL_DETAIL
