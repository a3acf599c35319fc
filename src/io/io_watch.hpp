// io_watch: the watch inside an io_context.
//
//   an idle worker    wait_until(): sets the timerfd, then run_one()
//   anybody           earlier(): timerfd_settime; interrupt(): writes the eventfd
//   a busy worker     poll(): poll_one(), a bounded number
//
// How the worker gets out of there although others run the io_context, too:
// io_alarm.hpp. How operations end that are cancelled in a stopped one: IW6 of
// watch_service.hpp.
//
// IW2  One worker of a runtime at a time is in the io_context: `inside`. One that finds
//      it taken by a poll() sleeps on the note meanwhile; the poll wakes it.
// IW4  A handler marks; the fibers are made ready when the worker has got up (got_up()),
//      so that nobody is woken for what it is about to take itself.
// IW5  A worker on the note looks now and then only while fibers wait for operations. It
//      sets `on_note` before it reads how many there are; the one that counts the first,
//      or one that is cancelled, reads `on_note` afterwards, and wakes it. All
//      sequentially consistent. So does a restart of the io_context, afterwards.
// IW7  An exception that leaves a handler goes to on_unhandled, in the worker, and the
//      next handler has its turn. Without on_unhandled nothing catches it, and the
//      unwinder takes the frame of bottom_of_handlers() for the last: so the program
//      ends where it was thrown, although noexcept functions, and a main() that may
//      catch, lie below.
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "io/io_alarm.hpp"
#include "sched/wait/note.hpp"
#include "sched/watch.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

#include <boost/asio/io_context.hpp>

namespace vigil::io::inline VIGIL_ABI::detail {

struct operation;

}  // namespace vigil::io::inline VIGIL_ABI::detail

namespace vigil::inline VIGIL_ABI::detail {

class io_watch final : public watch {
 public:
  // The caller's; throws std::invalid_argument if it is stopped.
  explicit io_watch(boost::asio::io_context& given);
  // Its own.
  io_watch();
  ~io_watch() override;
  io_watch(const io_watch&) = delete;
  io_watch& operator=(const io_watch&) = delete;

  void prepare() noexcept override;
  void wait_until(nanos deadline) noexcept override;

  bool interrupt() noexcept override { return interrupt(waker::thread); }

  bool interrupt_in_handler() noexcept override { return interrupt(waker::signal_handler); }

  bool earlier(nanos deadline) noexcept override;
  void poll() noexcept override;
  bool needs_poll() const noexcept override;

  bool knows_io() const noexcept override { return true; }

  void got_up() noexcept override;

  io_watch* as_io_watch() noexcept override { return this; }

  boost::asio::io_context& context() const noexcept { return context_; }

  // Operations that fibers wait for, and those of them that are being cancelled.
  void operation_begins() noexcept {
    if (operations_.fetch_add(1) == 0) look_again();
  }

  void operation_ends(bool was_cancelled) noexcept {
    operations_.fetch_sub(1);
    if (was_cancelled) cancelled_.fetch_sub(1);
  }

  // Once it has been asked to end: a look then finds it ready.
  void operation_cancelled() noexcept {
    cancelled_.fetch_add(1);
    look_again();
  }

  long cancelled() const noexcept { return cancelled_.load(); }

  // --- by the service of the io_context
  void context_restarted() noexcept { look_again(); }

  void context_gone() noexcept { alarm_->context_gone(); }

  // From a handler: true if the calling thread is a worker in wait_until(), which
  // has taken the waiter and will deliver it.
  static bool deliver_later(io::detail::operation& o) noexcept;

 private:
  io_watch(std::unique_ptr<boost::asio::io_context> own, boost::asio::io_context* given);

  template <class F>
  static std::size_t run(F f) noexcept;

  // IW5
  void look_again() noexcept {
    if (on_note_.load()) note_.wake();
  }

  bool interrupt(waker who) noexcept;
  bool enter() noexcept;
  void leave() noexcept;
  void set_timer(nanos deadline) noexcept VIGIL_EXCLUDES(timer_lock_);
  void write_timer(nanos deadline) noexcept VIGIL_REQUIRES(timer_lock_);
  void wait_inside() noexcept;
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
  std::uint32_t looks_ = 0;  // guarded by inside_
  int expected_ = 0;         // guarded by inside_: completions beside the first
  atomic<long> operations_{0};
  atomic<long> cancelled_{0};

  spinlock timer_lock_{lock_rank::watch};
  nanos earliest_ VIGIL_GUARDED_BY(timer_lock_) = never;  // since prepare()
  nanos set_to_ VIGIL_GUARDED_BY(timer_lock_) = never;    // what the timerfd has
  bool usable_ VIGIL_GUARDED_BY(timer_lock_) = true;      // the worker is not on the note
};

}  // namespace vigil::inline VIGIL_ABI::detail
