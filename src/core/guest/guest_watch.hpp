// guest_watch: the watch of a runtime whose worker runs inside the loop of a host. Where
// another worker would sleep, this one goes back to the host, with a descriptor that is
// readable once there is something to do.
//
//   the worker    wait_until(): sets the timerfd, and leaves its stack
//   the host      waits for the descriptor, and enters the stack again
//   any thread    interrupt(): writes the eventfd
//
// The descriptor is an epoll set of the two. If the program does I/O, a thread waits for
// that in vigil-io's watch during the run: it runs the handlers, and readies the fibers
// from outside.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"
#include "core/guest/side_stack.hpp"
#include "core/guest/wake_descriptor.hpp"
#include "core/sched/fiber/run_state.hpp"
#include "core/sched/idle/watch.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/options.hpp>

#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace VIGIL_DETAIL {

// Closes the descriptor that it is given.
class owned_fd {
 public:
  // Throws std::system_error if `fd` is negative; `call` is the one that gave it.
  owned_fd(int fd, const char* call);
  ~owned_fd();
  owned_fd(const owned_fd&) = delete;
  owned_fd& operator=(const owned_fd&) = delete;

  int get() const noexcept { return fd_; }

 private:
  const int fd_;
};

class event_fd {
 public:
  event_fd();

  void write() noexcept;
  void take() noexcept;

  int get() const noexcept { return fd_.get(); }

 private:
  const owned_fd fd_;
};

class guest_watch final : public watch {
 public:
  // Throws std::system_error.
  explicit guest_watch(const options& settings);
  ~guest_watch() override;

  // --- the host's thread
  int descriptor() const noexcept { return set_.get(); }

  side_stack& stack() noexcept { return stack_; }

  // --- a run
  // Throws std::system_error if no thread for I/O can be started.
  void begin();
  // Ends the thread for I/O, and leaves nothing to be called for, unless a run goes on.
  void end(const run_state& runs) noexcept;

  // Lets the worker run until it has nothing to do, or until its time is over, at the
  // first switch after that.
  void run(nanos until) noexcept;
  // Waits for the descriptor, until the given time at most.
  void wait_for_descriptor(nanos until) noexcept;

  // When the worker wants to run again; `never` if only an event from outside can have it
  // run.
  nanos wants_to_run_at() const noexcept { return wake_.is_set() ? 0 : next_; }

  bool interrupt() noexcept override { return wake_.set(); }

  // --- the worker
  void prepare() noexcept override;

  void wait_until(nanos deadline) noexcept override;

  bool needs_poll() const noexcept override { return true; }

  // Goes back to the host if the time is over that it has given.
  void poll() noexcept override;

  // --- I/O
  bool take_in(std::unique_ptr<watch>& io) override;

  // Pairs with the store in take_in().
  io_watch* as_io_watch() noexcept override {
    watch* const io = io_.load(order::acquire);
    return io != nullptr ? io->as_io_watch() : nullptr;
  }

 private:
  bool is_hosted() const noexcept;
  void set_timer(nanos deadline) noexcept;
  void start_io_thread();
  void wait_for_io() noexcept;

  const shared_call<void(std::exception_ptr)> on_unhandled_;  // for handlers
  side_stack stack_;
  wake_descriptor<event_fd> wake_;
  const owned_fd timer_;
  const owned_fd set_;

  // The worker's and the host's, in turns.
  nanos set_to_ = never;  // the timerfd's deadline
  nanos next_ = 0;
  nanos leaves_at_ = never;

  std::mutex lock_;  // guards the next one, and the thread
  std::unique_ptr<watch> io_owner_;
  atomic<watch*> io_{nullptr};
  atomic<bool> io_ends_{false};
  atomic<bool> is_ending_{false};  // pairs with run_state::phase(): end()
  std::thread io_thread_;
};

}  // namespace VIGIL_DETAIL
