// The events of the flight recorder, two words each. docs/internals/recorder.md has the
// table.
#pragma once

#include "core/base/nanos.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

// "The fiber": the one whose `run` was the last in the same log; after a `leave`, none.
enum class event_kind : std::uint8_t {
  none,
  run,          // value: a fiber that the worker runs now; detail: how the last one left
  leave,        // the worker itself goes on; detail: how the fiber left
  ready,        // value: a fiber that the fiber, or the worker, has made ready
  start,        // value: a fiber that the fiber has started
  place,        // of the event before: time: the line, value: the address of the file's name
  name,         // of the event before: fifteen bytes more
  steal,        // value: the number of fibers
  sleep,        // the thread sleeps
  wake,         // ... no longer
  timer_armed,  // value and detail: the deadline, as split_nanos
  timer_reset,  // the same
  timer_stopped,
  timer_fired,    // value: nanoseconds after the deadline; detail: timer_kind
  timer_due,      // of a callback that is queued now; the same
  call_begins,    // value: a fiber whose function a thread of a side pool runs
  call_ends,      // the same
  region_begins,  // value: the address of its name
  region_ends,
  deadline_missed,  // a context has ended by its deadline
};

inline constexpr unsigned event_kinds = static_cast<unsigned>(event_kind::deadline_missed) + 1;

struct event {
  static constexpr unsigned kind_bits = 8;
  static constexpr unsigned detail_bits = 16;
  static constexpr std::uint64_t most = (std::uint64_t{1} << (64 - detail_bits)) - 1;

  // `value`: at most `most`.
  static constexpr event make(std::uint64_t time,
                              event_kind kind,
                              std::uint64_t value,
                              std::uint16_t detail) noexcept {
    return {time << kind_bits | static_cast<std::uint8_t>(kind), value << detail_bits | detail};
  }

  event_kind kind() const noexcept { return static_cast<event_kind>(head & 0xff); }

  // In units of the log's clock, without the upper eight bits.
  std::uint64_t time() const noexcept { return head >> kind_bits; }

  std::uint64_t value() const noexcept { return tail >> detail_bits; }

  std::uint16_t detail() const noexcept { return static_cast<std::uint16_t>(tail); }

  std::uint64_t head;
  std::uint64_t tail;
};

// A time of the runtime's clock, for which 48 bits of nanoseconds are too few: its
// microseconds, and the rest.
struct split_nanos {
  explicit constexpr split_nanos(nanos t) noexcept
      : micros(static_cast<std::uint64_t>(t < 0 ? 0 : t) / 1000),
        rest(static_cast<std::uint16_t>(static_cast<std::uint64_t>(t < 0 ? 0 : t) % 1000)) {}

  std::uint64_t micros;
  std::uint16_t rest;
};

}  // namespace VIGIL_DETAIL
