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
  // `name`: of its own time, not an idle list's.
  explicit movable_deadline(time_of name);
  ~movable_deadline();
  movable_deadline(const movable_deadline&) = delete;
  movable_deadline& operator=(const movable_deadline&) = delete;

  // Any thread. Nanoseconds of the clock; the largest: none.
  void set(std::int64_t deadline) noexcept;
  std::int64_t value() const noexcept;
  // Any thread: the present wait ends, and so do all later ones. For good.
  void close() noexcept;
  // Any thread: the present wait ends as if the deadline had come; but not if the entry
  // is in a list again, since bytes have come meanwhile.
  void end_wait(const timeout_list::entry& expired) noexcept;

  // Now or later than it, on the caller's clock.
  bool is_over() const noexcept;
  bool is_closed() const noexcept;
  // The error of a call that has not begun: bad_descriptor, timed_out or nothing.
  boost::system::error_code error() const noexcept;

  // --- by an operation, one at a time
  // Begins a wait, or looks again during one: until when it may last.
  std::int64_t wait_to(operation& o) noexcept;
  // The end of a wait. Returns what one that was cut fails with: timed_out, or
  // operation_aborted after close().
  boost::system::error_code waited() noexcept;

 private:
  struct part;

  const std::unique_ptr<part> part_;
  const time_of name_;
};

}  // namespace vigil::io::inline VIGIL_ABI::detail
