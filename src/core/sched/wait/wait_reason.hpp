// wait_reason: why a fiber is parked, as the dump prints it. One value per kind of wait.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace VIGIL_DETAIL {

enum class wait_reason : std::uint8_t {
  none,
  sleep,
  join,
  stop_and_wait,
  timer_empty,  // the timer fiber: no timer is pending
  timer_note,   // the timer fiber: sleeping on the note
  idle_runner,  // a callback fiber without a callback
  shutdown,     // the main fiber, waiting for the others to end
  all_done,     // the main fiber, waiting for the program to end by itself
  settle,       // testing::settle
  signal,       // waiting for a watched signal
  send,
  recv,
  send_nil,
  recv_nil,
  select,
  select_none,  // a select without cases
  group,        // for the end of a group's fibers
  group_place,  // for a place in a group with a limit
  blocking,     // a function on a side pool
  on_expire,    // the end of a timeout entry's callback
  mutex,
  shared_mutex_write,
  shared_mutex_read,
  condition,
  wait_group,
  latch,
  semaphore,
  once,
  rate_limiter,
  io,           // an Asio operation
  connections,  // bytes for a connection without a fiber
  test,         // the library's own tests
};

// The purpose of a wait: the reason, and the object, for those who look inside.
struct awaited {
  constexpr awaited(wait_reason why) noexcept : reason(why) {}

  constexpr awaited(wait_reason why, const void* what) noexcept : reason(why), object(what) {}

  wait_reason reason;
  // join: the fiber's control block, or the task_core; send and recv: the channel_core;
  // select: its shown_select; blocking: the side_call; io: the `birth` of a stream in
  // memory, or an odd number for a descriptor of the kernel's
  // (io/detail/shown_object.hpp); otherwise the `birth` in the object. nullptr if there
  // is none, or if it is not known.
  const void* object = nullptr;
};

// The kinds of wait, in the order of the values.
struct wait_kind {
  wait_reason reason;
  const char* name;
  // Whether a fiber that waits for this may be stuck: something that fibers and threads
  // of the program do ends it, and not the library or the system.
  bool is_for_others = false;
};

inline constexpr wait_kind wait_kinds[] = {
    {wait_reason::none, "nothing"},
    {wait_reason::sleep, "sleep", true},
    {wait_reason::join, "join", true},
    {wait_reason::stop_and_wait, "stop_and_wait"},
    {wait_reason::timer_empty, "timers: none pending"},
    {wait_reason::timer_note, "timers: the note"},
    {wait_reason::idle_runner, "a callback to run"},
    {wait_reason::shutdown, "shutdown: other fibers"},
    {wait_reason::all_done, "exit: until all is done"},
    {wait_reason::settle, "settle"},
    {wait_reason::signal, "signal"},
    {wait_reason::send, "channel send", true},
    {wait_reason::recv, "channel receive", true},
    {wait_reason::send_nil, "channel send (nil channel)", true},
    {wait_reason::recv_nil, "channel receive (nil channel)", true},
    {wait_reason::select, "select", true},
    {wait_reason::select_none, "select (no cases)", true},
    {wait_reason::group, "group: its fibers", true},
    {wait_reason::group_place, "group: a place", true},
    {wait_reason::blocking, "blocking: a function on a side pool"},
    {wait_reason::on_expire, "the end of an on_expire"},
    {wait_reason::mutex, "mutex", true},
    {wait_reason::shared_mutex_write, "shared_mutex (to write)", true},
    {wait_reason::shared_mutex_read, "shared_mutex (to read)", true},
    {wait_reason::condition, "condition_variable", true},
    {wait_reason::wait_group, "wait_group", true},
    {wait_reason::latch, "latch", true},
    {wait_reason::semaphore, "semaphore", true},
    {wait_reason::once, "once (another runs it)", true},
    {wait_reason::rate_limiter, "rate_limiter"},
    {wait_reason::io, "I/O"},
    {wait_reason::connections, "bytes for a connection without a fiber"},
    {wait_reason::test, "test"},
};

constexpr bool are_in_order() noexcept {
  for (std::size_t i = 0; i < std::size(wait_kinds); ++i) {
    if (static_cast<std::size_t>(wait_kinds[i].reason) != i) return false;
  }
  return std::size(wait_kinds) == static_cast<std::size_t>(wait_reason::test) + 1;
}

static_assert(are_in_order());

constexpr const char* to_string(wait_reason reason) noexcept {
  const auto i = static_cast<std::size_t>(reason);
  return i < std::size(wait_kinds) ? wait_kinds[i].name : "?";
}

constexpr bool is_for_others(wait_reason reason) noexcept {
  return wait_kinds[static_cast<std::size_t>(reason)].is_for_others;
}

// The name of the same wait as one of several.
constexpr const char* case_name(wait_reason reason) noexcept {
  if (reason == wait_reason::send) return "send";
  if (reason == wait_reason::recv) return "receive";
  return to_string(reason);
}

}  // namespace VIGIL_DETAIL
