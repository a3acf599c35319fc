// wait_reason: why a fiber is parked, as the dump prints it. One value per kind of wait.
//
// A new one is a value and its row in wait_kinds.
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

// The thing that ends a wait. The search for stuck fibers looks for a way to it: a
// fiber that the system or the library sees to is not stuck.
enum class ended_by : std::uint8_t {
  system,
  nobody,        // but its deadline, a stop or its context
  end_of_other,  // of what is joined
  channel,
  cases,  // each of a select
  group,
  queue,  // of a lock, a count or a condition, which begins with its `birth`
};

// The kinds of wait, in the order of the values. Nothing is left out of a row.
struct wait_kind {
  constexpr wait_kind(wait_reason r, const char* n, ended_by e) noexcept
      : reason(r), name(n), by(e) {}

  wait_reason reason;
  const char* name;
  ended_by by;
};

inline constexpr wait_kind wait_kinds[] = {
    {wait_reason::none, "nothing", ended_by::system},
    {wait_reason::sleep, "sleep", ended_by::nobody},
    {wait_reason::join, "join", ended_by::end_of_other},
    {wait_reason::stop_and_wait, "stop_and_wait", ended_by::system},
    {wait_reason::timer_empty, "timers: none pending", ended_by::system},
    {wait_reason::timer_note, "timers: the note", ended_by::system},
    {wait_reason::idle_runner, "a callback to run", ended_by::system},
    {wait_reason::shutdown, "shutdown: other fibers", ended_by::system},
    {wait_reason::all_done, "exit: until all is done", ended_by::system},
    {wait_reason::settle, "settle", ended_by::system},
    {wait_reason::signal, "signal", ended_by::system},
    {wait_reason::send, "channel send", ended_by::channel},
    {wait_reason::recv, "channel receive", ended_by::channel},
    {wait_reason::send_nil, "channel send (nil channel)", ended_by::nobody},
    {wait_reason::recv_nil, "channel receive (nil channel)", ended_by::nobody},
    {wait_reason::select, "select", ended_by::cases},
    {wait_reason::select_none, "select (no cases)", ended_by::nobody},
    {wait_reason::group, "group: its fibers", ended_by::group},
    {wait_reason::group_place, "group: a place", ended_by::group},
    {wait_reason::blocking, "blocking: a function on a side pool", ended_by::system},
    {wait_reason::on_expire, "the end of an on_expire", ended_by::system},
    {wait_reason::mutex, "mutex", ended_by::queue},
    {wait_reason::shared_mutex_write, "shared_mutex (to write)", ended_by::queue},
    {wait_reason::shared_mutex_read, "shared_mutex (to read)", ended_by::queue},
    {wait_reason::condition, "condition_variable", ended_by::queue},
    {wait_reason::wait_group, "wait_group", ended_by::queue},
    {wait_reason::latch, "latch", ended_by::queue},
    {wait_reason::semaphore, "semaphore", ended_by::queue},
    {wait_reason::once, "once (another runs it)", ended_by::queue},
    {wait_reason::rate_limiter, "rate_limiter", ended_by::system},
    {wait_reason::io, "I/O", ended_by::system},
    {wait_reason::connections, "bytes for a connection without a fiber", ended_by::system},
    {wait_reason::test, "test", ended_by::system},
};

constexpr bool are_in_order() noexcept {
  for (std::size_t i = 0; i < std::size(wait_kinds); ++i) {
    if (static_cast<std::size_t>(wait_kinds[i].reason) != i) return false;
  }
  return std::size(wait_kinds) == static_cast<std::size_t>(wait_reason::test) + 1;
}

static_assert(are_in_order(), "wait_kinds has one row for each wait_reason, in their order");

constexpr const char* to_string(wait_reason reason) noexcept {
  const auto i = static_cast<std::size_t>(reason);
  return i < std::size(wait_kinds) ? wait_kinds[i].name : "?";
}

constexpr ended_by what_ends(wait_reason reason) noexcept {
  return wait_kinds[static_cast<std::size_t>(reason)].by;
}

constexpr bool is_for_others(wait_reason reason) noexcept {
  return what_ends(reason) != ended_by::system;
}

// The name of the same wait as one of several.
constexpr const char* case_name(wait_reason reason) noexcept {
  if (reason == wait_reason::send) return "send";
  if (reason == wait_reason::recv) return "receive";
  return to_string(reason);
}

}  // namespace VIGIL_DETAIL
