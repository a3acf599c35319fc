// io_alarm: what gets a worker out of an io_context: a timerfd and an eventfd, both
// registered once, as stream_descriptors. Each has one wait outstanding while a worker
// is in run_one().
//
// The danger. The io_context may be run by threads of the caller's, too, or by another
// runtime. One of the threads in it waits for descriptors, the others for a condition
// that only a posted handler wakes. So our worker may sleep there while another thread
// runs the handler that was to wake it.
//
// The rule. A thread that runs that handler and is not the worker posts another one,
// and stays in its own until the worker is out, a millisecond at most. Each thread
// that takes such a handler does so, so at last the worker gets it.
//
// IW1  `rung` is set before `waiting` is read; the worker sets `waiting` before it
//      reads `rung` and its own flag. All sequentially consistent, so either the
//      handler sees that somebody is to be woken, or the worker does not go in.
// IW3  Handlers keep the alarm, so the watch may go first: it closes it. If the
//      io_context goes first, `gone` says so, and nothing of it is touched.
#pragma once

#include "base/atomic.hpp"
#include "base/nanos.hpp"

#include <cstddef>
#include <memory>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace vigil::inline VIGIL_ABI::detail {

// The memory of an operation of which there is one at a time. A thread that allocates
// has seen, through an atomic, that the one before is over.
struct one_operation {
  static constexpr std::size_t room = 256;
  alignas(std::max_align_t) std::byte bytes[room];
  bool used = false;
};

class io_alarm : public std::enable_shared_from_this<io_alarm> {
 public:
  // Throws boost::system::system_error.
  explicit io_alarm(boost::asio::io_context& context);

  // --- the worker
  void prepare() noexcept { rung_.store(false); }

  // False: there is no memory for a wait.
  bool arm() noexcept;
  void begin_wait() noexcept;  // IW1; it may still not go in

  void got_out() noexcept { waiting_.store(false); }  // of run_one()

  void end_wait() noexcept;  // nor does it take more handlers

  bool has_rung() const noexcept { return rung_.load(); }

  // --- one at a time
  // Nanoseconds of the monotonic clock; `never` disarms it.
  void set_timer(nanos deadline) noexcept;

  // Whether it has come, which makes it ring until it is set again.
  bool take_fired() noexcept { return timer_.fired.exchange(false); }

  // --- any thread
  // Async-signal-safe. Returns whether it could be done.
  bool interrupt() noexcept;

  void context_gone() noexcept { gone_.store(true); }

  bool is_context_gone() const noexcept { return gone_.load(); }

  // By the watch: the last call.
  void close() noexcept;

 private:
  struct wait_handler;
  struct rouse_handler;

  using stream =
      boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type>;

  struct source {
    int fd = -1;                // the descriptor's
    atomic<bool> armed{false};  // a wait is outstanding
    atomic<bool> fired{false};  // one has come, since take_fired()
    one_operation memory;
  };

  // Objects that ask the io_context when they die.
  struct registered {
    explicit registered(boost::asio::io_context& of)
        : timer(of.get_executor()), event(of.get_executor()), work(of.get_executor()) {}

    stream timer;
    stream event;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
    registered* next_left = nullptr;  // see close()
  };

  bool arm(source& s, stream& d) noexcept;
  // By handlers, on any thread that runs the io_context.
  void ring();
  void rouse();

  boost::asio::io_context& context_;
  std::unique_ptr<registered> registered_;
  source timer_;
  source event_;
  atomic<bool> written_{false};  // the eventfd may be readable
  atomic<bool> gone_{false};     // the io_context has been destroyed
  atomic<bool> rung_{false};     // the worker is to come out
  atomic<bool> waiting_{false};  // it is in run_one(), or about to go there
  atomic<bool> rousing_{false};  // a posted handler is on its way
  one_operation rouse_memory_;
};

}  // namespace vigil::inline VIGIL_ABI::detail
