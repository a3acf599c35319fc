// A deadline that may be moved while an operation waits for it.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/error.hpp>
#include <vigil/timeout_list.hpp>

#include <cstdint>
#include <memory>

namespace vigil::io::inline VIGIL_ABI::detail {

struct operation;

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
  // Ends the current wait as if the deadline had come, unless the entry is in a list
  // again because bytes have come meanwhile. Any thread.
  void end_wait(const timeout_list::entry& expired) noexcept;

  // Whether the deadline has come, on the caller's clock.
  bool is_over() const noexcept;
  bool is_closed() const noexcept;
  // The error of a call that has not begun: bad_descriptor, timed_out or none.
  boost::system::error_code error() const noexcept;

  // --- For an operation; one at a time.
  // Begins a wait, or looks again during one. Returns the time until which it may last.
  std::int64_t wait_to(operation& o) noexcept;
  // Ends the wait. Returns the error of one that was cut short: timed_out, or
  // operation_aborted after close().
  boost::system::error_code waited() noexcept;

 private:
  struct part;

  const std::unique_ptr<part> part_;
  const time_of name_;
};

}  // namespace vigil::io::inline VIGIL_ABI::detail
