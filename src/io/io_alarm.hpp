// io_alarm: gets a worker out of an io_context, through a timerfd and an eventfd that are
// registered once, as stream_descriptors. Each has one wait outstanding while a worker is
// in run_one().
//
// The danger. The caller's threads, or another runtime, may run the io_context as well.
// One of the threads in it waits for descriptors, the others for a condition that only a
// posted handler signals. So our worker may sleep there while another thread runs the
// handler that was to wake it.
//
// The rule. A thread that runs that handler and is not the worker posts another one, and
// stays in its own until the worker is out, for a millisecond at most. Each thread that
// takes such a handler does the same, so in the end the worker gets one.
//
// IW1  `rung` is set before `waiting` is read; the worker sets `waiting` before it reads
//      `rung` and its own flag. All of it is sequentially consistent, so either the
//      handler sees that there is a worker to wake, or the worker does not go in.
// IW3  Handlers keep the alarm alive, so the watch may go first: it closes the alarm. If
//      the io_context goes first, `gone` says so, and nothing of the io_context is
//      touched.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"

#include <vigil/io/detail/one_operation.hpp>

#include <memory>
#include <optional>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace VIGIL_DETAIL {

class io_alarm : public std::enable_shared_from_this<io_alarm> {
 public:
  // Throws boost::system::system_error.
  explicit io_alarm(boost::asio::io_context& context);

  // --- called before a run, and after it. From its construction on the alarm holds the
  // io_context: it does not run out of work.
  bool holds() const noexcept { return registered_->work.has_value(); }

  void hold() noexcept;
  void let_go() noexcept;

  // --- called by the worker
  void prepare() noexcept { rung_.store(false); }

  // Returns false if there is no memory for a wait.
  bool arm() noexcept;
  void begin_wait() noexcept;  // IW1; the worker may still not go in

  void got_out() noexcept { waiting_.store(false); }  // of run_one()

  void end_wait() noexcept;  // it takes no more handlers

  bool has_rung() const noexcept { return rung_.load(); }

  // --- one caller at a time
  // Sets the timer, in nanoseconds of the monotonic clock; `never` disarms it.
  void set_timer(nanos deadline) noexcept;

  // Returns whether the timer has fired; if so, it rings until it is set again.
  bool take_fired() noexcept { return timer_.fired.exchange(false); }

  // --- any thread
  // Returns whether it succeeded. Async-signal-safe.
  bool interrupt() noexcept;

  void context_gone() noexcept { gone_.store(true); }

  bool is_context_gone() const noexcept { return gone_.load(); }

  // The watch's last call.
  void close() noexcept;

 private:
  struct wait_handler;
  struct rouse_handler;

  using stream =
      boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type>;

  struct source {
    int fd = -1;                // the stream's
    atomic<bool> armed{false};  // a wait is outstanding
    atomic<bool> fired{false};  // a wait has completed since take_fired()
    io::detail::one_operation memory;
  };

  // Objects whose destructors use the io_context.
  struct registered {
    explicit registered(boost::asio::io_context& of)
        : timer(of.get_executor()),
          event(of.get_executor()),
          work(std::in_place, of.get_executor()) {}

    stream timer;
    stream event;
    std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work;
    registered* next_left = nullptr;  // see close()
  };

  bool arm(source& s, stream& d) noexcept;
  // Called by handlers, on any thread that runs the io_context.
  void ring();
  void rouse();

  boost::asio::io_context& context_;
  std::unique_ptr<registered> registered_;
  source timer_;
  source event_;
  atomic<bool> written_{false};  // the eventfd may be readable
  atomic<bool> gone_{false};     // the io_context has been destroyed
  atomic<bool> rung_{false};     // the worker is to come out
  atomic<bool> waiting_{false};  // it is in run_one(), or about to enter it
  atomic<bool> rousing_{false};  // a posted handler is on its way
  io::detail::one_operation rouse_memory_;
};

}  // namespace VIGIL_DETAIL
