// readiness: how a fiber waits until bytes can be read from a stream of the kernel's, or
// written to it. One object for each direction of a stream.
//
//   if (begins_wait(r, executor)) stream.async_wait(wait_read, ready_handler(r));
//   error = wait(*r.get(), deadline, executor);   // then the read is tried again
//
// The danger. An operation that transfers bytes has to be over before its fiber goes on,
// since it writes into the fiber's buffer.
//
// The rule. Asio only waits; the fiber transfers the bytes itself. So a deadline, a stop
// and close() end the fiber's wait at once. Asio's wait is cancelled then, but its
// handler comes later, or never; the next wait in that io_context joins it.
//
// RD1  At most one handler is outstanding (`armed`). It clears `armed` and sets `come` in
//      one step, under the lock; a fiber clears `come` before it looks at `armed`. So
//      after a fiber has found the stream empty, or full, either a wait that begins then
//      or one that was outstanding sees all that comes later. A handler that comes late,
//      for bytes that were read meanwhile, is a false alarm: the fiber tries, and waits
//      again.
//      An arrival stands for a fiber: it is told by the handler, under the lock.
// RD2  A handler keeps the object alive. The stream may go first; its socket's
//      destructor ends the wait. A call touches its stream after a wait only if the
//      handler is outstanding: if it was destroyed, so was the io_context.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/handle.hpp>
#include <vigil/io/detail/any_io_executor.hpp>
#include <vigil/io/detail/one_operation.hpp>

#include <cstddef>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>

namespace VIGIL_DETAIL {

class waiter;

}  // namespace VIGIL_DETAIL

namespace VIGIL_IO_DETAIL {

class movable_deadline;
struct readiness;  // src/io/readiness.cpp; counted

VIGIL_API void retain(readiness* r) noexcept;
VIGIL_API void release(readiness* r) noexcept;

using readiness_ref = vigil::detail::handle<readiness>;

// --- Called by a fiber, one at a time. `by` is the executor of the stream.
// A wait begins. Returns whether the caller has to begin one of Asio's. Makes the object,
// or another one if a handler of another io_context is outstanding. Throws
// std::bad_alloc.
VIGIL_API bool begins_wait(readiness_ref& r, const boost::asio::any_io_executor& by);
// That has failed: no handler will come.
VIGIL_API void has_not_begun(readiness& r) noexcept;
VIGIL_API bool is_outstanding(readiness& r) noexcept;
// Waits for the handler. Returns timed_out, operation_aborted after close() or if the
// io_context was destroyed, the error with which Asio's wait has failed, or none: then
// the stream may be ready. `object` is for dumps (shown_object.hpp).
// Waits on a fiber (the deadline): throws stopped, wrong_place, std::bad_alloc.
VIGIL_API boost::system::error_code wait(readiness& r,
                                         movable_deadline& until,
                                         const boost::asio::any_io_executor& by,
                                         const void* object);

// --- The same without a fiber that waits.
class arrival {
 public:
  // The stream may be ready. Returns the waiter that the caller has to deliver once it
  // has released its locks, or nullptr. Called at most once for each begins_arrival(),
  // under the lock of the readiness.
  virtual vigil::detail::waiter* arrived() noexcept = 0;

 protected:
  ~arrival() = default;
};

// As begins_wait(), and tells `to` what comes from now on.
VIGIL_API bool begins_arrival(readiness_ref& r,
                              const boost::asio::any_io_executor& by,
                              arrival& to);
// `to` is not told any more when this returns. `r` may be empty.
VIGIL_API void ends_arrival(const readiness_ref& r) noexcept;

// --- Called by the handler, on any thread.
VIGIL_API void has_come(readiness& r, const boost::system::error_code& error) noexcept;
// A wait of a socket takes 136 bytes. An idle connection holds it.
inline constexpr std::size_t room_of_wait = 144;
VIGIL_API one_operation_of<room_of_wait>& memory_of(readiness& r) noexcept;

class ready_handler {
 public:
  using allocator_type = one_operation_allocator<void, room_of_wait>;

  explicit ready_handler(readiness_ref r) noexcept : of_(std::move(r)) {}

  ready_handler(ready_handler&&) noexcept = default;
  ready_handler& operator=(ready_handler&&) = delete;

  ~ready_handler() {
    if (of_) has_come(*of_.get(), boost::asio::error::operation_aborted);
  }

  // A wait that was cancelled is a false alarm.
  void operator()(const boost::system::error_code& error) {
    const readiness_ref of = std::move(of_);
    const bool was_cancelled = error == boost::asio::error::operation_aborted;
    has_come(*of.get(), was_cancelled ? boost::system::error_code() : error);
  }

  allocator_type get_allocator() const noexcept { return allocator_type(memory_of(*of_.get())); }

 private:
  readiness_ref of_;
};

}  // namespace VIGIL_IO_DETAIL
