// io_watch: the watch inside an io_context.
//
//   an idle worker    wait_until(): sets the timerfd, then run_one()
//   anybody           earlier(): timerfd_settime; interrupt(): writes the eventfd
//   a busy worker     poll(): poll_one(), a bounded number
//
// Both descriptors are registered once, as stream_descriptors, and each has one
// wait outstanding while a worker is in run_one().
//
// The danger. The io_context may be run by threads of the caller's, too, or by
// another runtime. Of several threads in it one waits for descriptors, the others
// for a condition that only a posted handler wakes. So our worker may sleep there
// while another thread runs the handler that was to wake it.
//
// The rule. Who runs that handler and is not the worker posts another one, and
// stays in its own until the worker is out, a millisecond at most. Each thread
// that takes such a handler does so, so at last the worker gets it.
//
// W1  `rung` is set before `waiting` is read; the worker sets `waiting` before it
//     reads `rung` and `interrupted`. All sequentially consistent, so either the
//     handler sees that somebody is to be woken, or the worker does not go in.
// W2  One worker of a runtime at a time is in the io_context: `inside`. Who finds
//     it taken by a poll() sleeps on the note meanwhile; the poll wakes it.
// W3  What handlers touch is in `shared`, which they keep: the watch may go first.
//     If the io_context goes first, `gone` says so, and nothing of it is touched.
// W4  A handler marks; the fibers are made ready when the worker has got up
//     (got_up()), so that nobody is woken for what it is about to take itself.
// W5  A worker on the note looks now and then only while fibers wait for operations.
//     It sets `on_note` before it reads how many there are; who counts the first, or
//     one that is cancelled, reads `on_note` afterwards, and wakes it. All
//     sequentially consistent. So does restart_context() once it has restarted.
// W6  A stopped io_context is restarted for a moment to end what is cancelled. A
//     restart by the caller meanwhile must not be undone by the stop that follows,
//     and Asio shows no difference: so the caller's goes through restart_context(),
//     under the lock under which a moment begins and ends.
// W7  What leaves a handler goes to on_unhandled, in the worker, and the next handler
//     has its turn. Without on_unhandled nothing catches it, and the unwinder takes
//     the frame of bottom_of_handlers() for the last: so the program ends where it was
//     thrown, although noexcept functions, and a main() that may catch, lie below.
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "sched/note.hpp"
#include "sched/watch.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

struct operation;

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil::io

namespace vigil::internal {

// restart() of a caller's io_context, and the runtimes in it hear of it.
void restart_context(boost::asio::io_context& context);

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

  // Once it has been asked to end: who looks then finds it ready.
  void operation_cancelled() noexcept {
    cancelled_.fetch_add(1);
    look_again();
  }

  long cancelled() const noexcept { return cancelled_.load(); }

  // --- by the service of the io_context
  void context_restarted() noexcept { look_again(); }

  void context_gone() noexcept;

  // From a handler: true if the calling thread is a worker in wait_until(), which
  // has taken the waiter and will deliver it.
  static bool deliver_later(io::detail::operation& o) noexcept;

  struct shared_part;

 private:
  struct descriptors;

  io_watch(std::unique_ptr<boost::asio::io_context> own, boost::asio::io_context* given);

  template <class F>
  static std::size_t run(F f) noexcept;

  // W5
  void look_again() noexcept {
    if (on_note_.load()) note_.wake();
  }

  bool interrupt(waker who) noexcept;
  bool enter() noexcept;
  void leave() noexcept;
  bool arm() noexcept;
  void set_timer(nanos deadline) noexcept VIGIL_EXCLUDES(timer_lock_);
  void write_timer(nanos deadline) noexcept VIGIL_REQUIRES(timer_lock_);
  void wait_inside() noexcept;
  void take_more() noexcept;
  void sleep_outside(nanos deadline) noexcept;
  void end_cancelled() noexcept;

  const std::unique_ptr<boost::asio::io_context> own_;
  boost::asio::io_context& context_;
  const std::shared_ptr<shared_part> shared_;
  std::unique_ptr<descriptors> descriptors_;

  note note_;
  atomic<bool> interrupted_{false};
  atomic<bool> inside_{false};
  atomic<bool> on_note_{false};
  atomic<bool> written_{false};  // the eventfd may be readable
  std::uint32_t looks_ = 0;      // guarded by inside_
  int expected_ = 0;             // guarded by inside_: completions beside the first
  atomic<long> operations_{0};
  atomic<long> cancelled_{0};

  spinlock timer_lock_{lock_rank::watch};
  nanos earliest_ VIGIL_GUARDED_BY(timer_lock_) = never;  // since prepare()
  nanos set_to_ VIGIL_GUARDED_BY(timer_lock_) = never;    // what the timerfd has
  bool usable_ VIGIL_GUARDED_BY(timer_lock_) = true;      // the worker is not on the note
};

}  // namespace vigil::internal
