// wait_reason: why a fiber is parked, as the dump prints it. One value per kind of wait.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>

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

constexpr const char* to_string(wait_reason reason) noexcept {
  switch (reason) {
    case wait_reason::none:
      return "nothing";
    case wait_reason::sleep:
      return "sleep";
    case wait_reason::join:
      return "join";
    case wait_reason::stop_and_wait:
      return "stop_and_wait";
    case wait_reason::timer_empty:
      return "timers: none pending";
    case wait_reason::timer_note:
      return "timers: the note";
    case wait_reason::idle_runner:
      return "a callback to run";
    case wait_reason::shutdown:
      return "shutdown: other fibers";
    case wait_reason::all_done:
      return "exit: until all is done";
    case wait_reason::settle:
      return "settle";
    case wait_reason::signal:
      return "signal";
    case wait_reason::send:
      return "channel send";
    case wait_reason::recv:
      return "channel receive";
    case wait_reason::send_nil:
      return "channel send (nil channel)";
    case wait_reason::recv_nil:
      return "channel receive (nil channel)";
    case wait_reason::select:
      return "select";
    case wait_reason::select_none:
      return "select (no cases)";
    case wait_reason::group:
      return "group: its fibers";
    case wait_reason::group_place:
      return "group: a place";
    case wait_reason::blocking:
      return "blocking: a function on a side pool";
    case wait_reason::on_expire:
      return "the end of an on_expire";
    case wait_reason::mutex:
      return "mutex";
    case wait_reason::shared_mutex_write:
      return "shared_mutex (to write)";
    case wait_reason::shared_mutex_read:
      return "shared_mutex (to read)";
    case wait_reason::condition:
      return "condition_variable";
    case wait_reason::wait_group:
      return "wait_group";
    case wait_reason::latch:
      return "latch";
    case wait_reason::semaphore:
      return "semaphore";
    case wait_reason::once:
      return "once (another runs it)";
    case wait_reason::rate_limiter:
      return "rate_limiter";
    case wait_reason::io:
      return "I/O";
    case wait_reason::connections:
      return "bytes for a connection without a fiber";
    case wait_reason::test:
      return "test";
  }
  return "?";
}

// Whether a fiber that waits for this may be stuck: something that fibers and threads of
// the program do ends it, and not the library or the system.
constexpr bool is_for_others(wait_reason reason) noexcept {
  switch (reason) {
    case wait_reason::sleep:
    case wait_reason::join:
    case wait_reason::send:
    case wait_reason::recv:
    case wait_reason::send_nil:
    case wait_reason::recv_nil:
    case wait_reason::select:
    case wait_reason::select_none:
    case wait_reason::group:
    case wait_reason::group_place:
    case wait_reason::mutex:
    case wait_reason::shared_mutex_write:
    case wait_reason::shared_mutex_read:
    case wait_reason::condition:
    case wait_reason::wait_group:
    case wait_reason::latch:
    case wait_reason::semaphore:
    case wait_reason::once:
      return true;
    case wait_reason::none:
    case wait_reason::stop_and_wait:
    case wait_reason::timer_empty:
    case wait_reason::timer_note:
    case wait_reason::idle_runner:
    case wait_reason::shutdown:
    case wait_reason::all_done:
    case wait_reason::settle:
    case wait_reason::signal:
    case wait_reason::blocking:
    case wait_reason::on_expire:
    case wait_reason::rate_limiter:
    case wait_reason::io:
    case wait_reason::connections:
    case wait_reason::test:
      return false;
  }
  return false;
}

// The name of the same wait as one of several.
constexpr const char* case_name(wait_reason reason) noexcept {
  if (reason == wait_reason::send) return "send";
  if (reason == wait_reason::recv) return "receive";
  return to_string(reason);
}

}  // namespace VIGIL_DETAIL
