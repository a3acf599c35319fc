// The exceptions of the library.
//
// A timeout is a result, never an exception. A wait whose context is done throws
// `cancelled`; a shutdown throws `stopped`.
#pragma once

#include <vigil/detail/config.hpp>

#include <exception>
#include <stdexcept>
#include <system_error>

namespace VIGIL_PUBLIC {

// stopped: thrown by a wait of a fiber that has been asked to stop, by the shutdown of
// its runtime or by request_stop() on its handle. It is not a std::exception, so `catch
// (const std::exception&)` lets it pass; let it unwind the fiber, which then ends
// silently. Stopping is sticky: a fiber that catches it gets it again from its next wait.
// Shutdown: each wait throws it once options::grace has passed, except under a
// this_fiber::shield and for a lock.
class VIGIL_API stopped {
 public:
  const char* what() const noexcept { return "vigil: the fiber has been asked to stop"; }
};

// cancelled: thrown by a wait whose context is done, and by join() for a fiber that ended
// by `stopped`. code() is equivalent to std::errc::timed_out if the context's deadline
// has passed, otherwise to std::errc::operation_canceled. Shutdown: waits under
// background(), or a context made from it, throw one with is_by_shutdown(), which ends a
// fiber as silently as `stopped` does. Lifetime: copies share the cause.
class VIGIL_API cancelled : public std::system_error {
 public:
  explicit cancelled(const char* message);
  cancelled(std::error_code code,
            const char* message,
            std::exception_ptr cause,
            bool by_shutdown = false);
  ~cancelled() override;

  // The exception given to the context's cancel function, with_deadline or with_timeout;
  // null if there was none.
  const std::exception_ptr& cause() const noexcept { return cause_; }

  // Whether the context is done because its runtime is shutting down.
  bool is_by_shutdown() const noexcept { return by_shutdown_; }

 private:
  std::exception_ptr cause_;
  bool by_shutdown_ = false;
};

// deadlock: nothing in the program can ever happen again, because every fiber is parked,
// no timer is pending and no outside work is announced. Thrown by run() after the dump
// has been written and the fibers have been unwound; before that by the wait for a lock
// of a fiber that cannot be unwound in another way (sync.hpp). Shutdown: it begins one; a
// fiber that it leaves ends silently, as by `stopped`.
class VIGIL_API deadlock : public std::logic_error {
 public:
  explicit deadlock(const char* message);
  ~deadlock() override;
};

// channel_closed: a send on a closed channel, or a second close. The value of a send is
// still in the caller's hand.
class VIGIL_API channel_closed : public std::logic_error {
 public:
  explicit channel_closed(const char* message);
  ~channel_closed() override;
};

// runtime_gone: the handle's runtime has ended, so the request cannot be carried out.
// Thrown where something would start, such as by timer::reset(); calls that only stop
// something return false.
class VIGIL_API runtime_gone : public std::logic_error {
 public:
  explicit runtime_gone(const char* message);
  ~runtime_gone() override;
};

// wrong_place: the call needs a fiber but was made outside one, or the other way round.
// what() says what to do instead.
class VIGIL_API wrong_place : public std::logic_error {
 public:
  explicit wrong_place(const char* message);
  ~wrong_place() override;
};

// limit_reached: a limit of options (fibers, stack memory) or of the system was reached.
// what() names the limit.
class VIGIL_API limit_reached : public std::runtime_error {
 public:
  explicit limit_reached(const char* message);
  ~limit_reached() override;
};

}  // namespace VIGIL_PUBLIC
