// Errors.
//
// A timeout is a result, never an exception. A wait whose context is done throws
// `cancelled`; a shutdown throws `stopped`.
#pragma once

#include <vigil/detail/config.hpp>

#include <exception>
#include <stdexcept>
#include <system_error>

namespace vigil::inline VIGIL_ABI {

// Thrown by a wait because the fiber has been asked to stop: by the shutdown
// of its runtime, or by request_stop() on its handle. It is not a
// std::exception, so `catch (const std::exception&)` lets it pass; let it
// unwind the fiber. A fiber that ends by it ends silently. Stopping is sticky:
// a fiber that catches it and waits again gets it again.
class VIGIL_API stopped {
 public:
  const char* what() const noexcept { return "vigil: the fiber has been asked to stop"; }
};

// A wait was cancelled: its context is done. code() says why: equivalent to
// std::errc::timed_out if the context's deadline has passed, otherwise to
// std::errc::operation_canceled. join() throws it, too, for a fiber that ended by
// `stopped`. One that the shutdown caused ends a fiber as silently as `stopped`.
class VIGIL_API cancelled : public std::system_error {
 public:
  explicit cancelled(const char* why);
  cancelled(std::error_code code,
            const char* why,
            std::exception_ptr cause,
            bool by_shutdown = false);
  ~cancelled() override;

  // The exception given to the context's cancel function, or to with_deadline or
  // with_timeout; null if there was none.
  const std::exception_ptr& cause() const noexcept { return cause_; }

  // The runtime of the context is shutting down.
  bool is_by_shutdown() const noexcept { return by_shutdown_; }

 private:
  std::exception_ptr cause_;
  bool by_shutdown_ = false;
};

// Nothing in the program can ever happen again: every fiber is parked, no
// timer is pending and no outside work is announced. Thrown by run() after
// the dump has been written and the fibers have been unwound. Before that by the
// wait for a lock of a fiber that could not be unwound otherwise (sync.hpp); a
// fiber that it leaves then ends silently, as by `stopped`.
class VIGIL_API deadlock : public std::logic_error {
 public:
  explicit deadlock(const char* why);
  ~deadlock() override;
};

// A send on a closed channel, or a second close. The value of a send is still
// in the caller's hand.
class VIGIL_API channel_closed : public std::logic_error {
 public:
  explicit channel_closed(const char* why);
  ~channel_closed() override;
};

// The handle's runtime has ended: there is nobody left to do what was asked.
class VIGIL_API runtime_gone : public std::logic_error {
 public:
  explicit runtime_gone(const char* why);
  ~runtime_gone() override;
};

// A call that only makes sense on a fiber, or only outside one, was made in
// the wrong place; what() says what to do instead.
class VIGIL_API wrong_place : public std::logic_error {
 public:
  explicit wrong_place(const char* why);
  ~wrong_place() override;
};

// A limit of options (fibers, stack memory) or of the system was reached;
// what() names the limit.
class VIGIL_API limit_reached : public std::runtime_error {
 public:
  explicit limit_reached(const char* why);
  ~limit_reached() override;
};

}  // namespace vigil::inline VIGIL_ABI
