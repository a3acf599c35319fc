// System calls that fail on a test's request. The program that links faults.cpp has its
// own accept, recv, epoll_ctl and so on, which Asio and vigil-io then call.
#pragma once

namespace vigil::fault {

// epoll_add, epoll_mod and epoll_del are epoll_ctl by its operation. Only the first takes
// memory; Linux gives none of the tests' errors for the other two.
enum class call {
  socket,
  connect,
  accept,
  recv,
  recvmsg,
  send,
  sendmsg,
  read,
  readv,
  write,
  writev,
  epoll_create,
  epoll_add,
  epoll_mod,
  epoll_del,
  epoll_wait,
  timerfd_create,
  timerfd_settime,
  eventfd,
  count
};

const char* name_of(call c) noexcept;

// From now on calls are counted, and of the calls of `which` the nth (from 1) and the
// `times` - 1 after it fail with this error.
void start(call which, long nth, int error, long times = 1) noexcept;
void start() noexcept;  // counts only
void stop() noexcept;

// The calls since start(), including failed ones.
long calls(call c) noexcept;

}  // namespace vigil::fault
