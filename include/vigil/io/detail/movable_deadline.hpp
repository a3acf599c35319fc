// A deadline that may be moved while a call waits for it.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/error.hpp>
#include <vigil/timeout_list.hpp>

#include <cstdint>
#include <memory>

namespace VIGIL_DETAIL {

class waiter;

}  // namespace VIGIL_DETAIL

namespace VIGIL_IO_DETAIL {

// A wait whose deadline may be moved.
class limited_wait {
 public:
  // Makes the wait look at its limit again. Returns the waiter that the caller has to
  // deliver, once it has released its locks, or nullptr. Called under the deadline's
  // lock.
  virtual vigil::detail::waiter* look_again() noexcept = 0;

 protected:
  ~limited_wait() = default;
};

class VIGIL_API movable_deadline {
 public:
  // `name` is that of its own time, not of an idle list's.
  explicit movable_deadline(time_of name);
  ~movable_deadline();
  movable_deadline(const movable_deadline&) = delete;
  movable_deadline& operator=(const movable_deadline&) = delete;

  // Sets the deadline, in nanoseconds of the clock; the largest value means none. Any
  // thread.
  void set(std::int64_t deadline) noexcept;
  std::int64_t value() const noexcept;
  // Ends the current wait and all later ones, for good. Any thread.
  void close() noexcept;
  // Ends the current waits of both directions of a stream as if their deadlines had come,
  // unless the entry is in a list again because bytes have come meanwhile. Any thread.
  static void end_both(movable_deadline& read,
                       movable_deadline& write,
                       const timeout_list::entry& expired) noexcept;

  // Whether the deadline has come, on the caller's clock.
  bool is_over() const noexcept;
  bool is_closed() const noexcept;
  // The error of a call that has not begun: bad_descriptor, timed_out or none.
  boost::system::error_code error() const noexcept;

  // --- For a wait; one at a time.
  // Begins the wait, or looks again during one. Returns the time until which it may last.
  std::int64_t begin_wait(limited_wait& w) noexcept;
  // Ends the wait. Returns the error of one that was cut short, timed_out or
  // operation_aborted after close(); none for another one.
  boost::system::error_code end_wait(bool was_cut) noexcept;

 private:
  struct part;

  vigil::detail::waiter* claim(const timeout_list::entry& expired) noexcept;

  const std::unique_ptr<part> part_;
  const time_of name_;
};

}  // namespace VIGIL_IO_DETAIL
