#include "io/faults.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <ctime>

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

namespace vigil::fault {
namespace {

constexpr int kinds = static_cast<int>(call::count);

struct plan {
  std::atomic<bool> active{false};
  std::atomic<int> which{kinds};
  std::atomic<long> first{0};
  std::atomic<long> last{0};
  std::atomic<int> error{0};
  std::atomic<long> calls[kinds]{};
};

plan& present() noexcept {
  static plan& one = *new plan;
  return one;
}

// Returns whether the call fails; if so, sets errno.
bool fails(call c) noexcept {
  plan& p = present();
  if (!p.active.load()) return false;
  const int which = static_cast<int>(c);
  const long n = p.calls[which].fetch_add(1) + 1;
  if (p.which.load() != which || n < p.first.load() || n > p.last.load()) return false;
  errno = p.error.load();
  return true;
}

// The program's own output is left alone.
bool fails(call c, int fd) noexcept {
  return fd > 2 && fails(c);
}

// The function that the call means otherwise: a sanitizer's, or the C library's.
template <class F>
F* real(F* sanitizers, const char* name) noexcept {
  if (sanitizers != nullptr) return sanitizers;
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

const char* name_of(call c) noexcept {
  static constexpr const char* names[] = {"socket",
                                          "connect",
                                          "accept",
                                          "recv",
                                          "recvmsg",
                                          "send",
                                          "sendmsg",
                                          "read",
                                          "readv",
                                          "write",
                                          "writev",
                                          "epoll_create",
                                          "epoll_ctl(ADD)",
                                          "epoll_ctl(MOD)",
                                          "epoll_ctl(DEL)",
                                          "epoll_wait",
                                          "timerfd_create",
                                          "timerfd_settime",
                                          "eventfd"};
  return names[static_cast<int>(c)];
}

void start(call which, long nth, int error, long times) noexcept {
  plan& p = present();
  p.active.store(false);
  for (auto& n : p.calls)
    n.store(0);
  p.which.store(static_cast<int>(which));
  p.first.store(nth);
  p.last.store(nth + times - 1);
  p.error.store(error);
  p.active.store(true);
}

void start() noexcept {
  start(call::count, 0, 0, 0);
}

void stop() noexcept {
  present().active.store(false);
}

long calls(call c) noexcept {
  return present().calls[static_cast<int>(c)].load();
}

}  // namespace vigil::fault

using vigil::fault::call;
using vigil::fault::fails;
using vigil::fault::real;

extern "C" {

[[gnu::weak]] int __interceptor_socket(int, int, int) noexcept;
[[gnu::weak]] int __interceptor_connect(int, const sockaddr*, socklen_t);
[[gnu::weak]] int __interceptor_accept(int, sockaddr*, socklen_t*);
[[gnu::weak]] ssize_t __interceptor_recv(int, void*, std::size_t, int);
[[gnu::weak]] ssize_t __interceptor_recvmsg(int, msghdr*, int);
[[gnu::weak]] ssize_t __interceptor_send(int, const void*, std::size_t, int);
[[gnu::weak]] ssize_t __interceptor_sendmsg(int, const msghdr*, int);
[[gnu::weak]] ssize_t __interceptor_read(int, void*, std::size_t);
[[gnu::weak]] ssize_t __interceptor_readv(int, const iovec*, int);
[[gnu::weak]] ssize_t __interceptor_write(int, const void*, std::size_t);
[[gnu::weak]] ssize_t __interceptor_writev(int, const iovec*, int);
[[gnu::weak]] int __interceptor_epoll_create1(int) noexcept;
[[gnu::weak]] int __interceptor_epoll_ctl(int, int, int, epoll_event*) noexcept;
[[gnu::weak]] int __interceptor_epoll_wait(int, epoll_event*, int, int);
[[gnu::weak]] int __interceptor_timerfd_create(clockid_t, int) noexcept;
[[gnu::weak]] int __interceptor_timerfd_settime(int, int, const itimerspec*, itimerspec*) noexcept;
[[gnu::weak]] int __interceptor_eventfd(unsigned, int) noexcept;

int socket(int domain, int type, int protocol) noexcept {
  static const auto next = real(__interceptor_socket, "socket");
  return fails(call::socket) ? -1 : next(domain, type, protocol);
}

int connect(int fd, const sockaddr* address, socklen_t size) {
  static const auto next = real(__interceptor_connect, "connect");
  return fails(call::connect) ? -1 : next(fd, address, size);
}

int accept(int fd, sockaddr* address, socklen_t* size) {
  static const auto next = real(__interceptor_accept, "accept");
  return fails(call::accept) ? -1 : next(fd, address, size);
}

ssize_t recv(int fd, void* to, std::size_t size, int flags) {
  static const auto next = real(__interceptor_recv, "recv");
  return fails(call::recv) ? -1 : next(fd, to, size, flags);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto next = real(__interceptor_recvmsg, "recvmsg");
  return fails(call::recvmsg) ? -1 : next(fd, message, flags);
}

ssize_t send(int fd, const void* from, std::size_t size, int flags) {
  static const auto next = real(__interceptor_send, "send");
  return fails(call::send) ? -1 : next(fd, from, size, flags);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto next = real(__interceptor_sendmsg, "sendmsg");
  return fails(call::sendmsg) ? -1 : next(fd, message, flags);
}

ssize_t read(int fd, void* to, std::size_t size) {
  static const auto next = real(__interceptor_read, "read");
  return fails(call::read, fd) ? -1 : next(fd, to, size);
}

ssize_t readv(int fd, const iovec* to, int n) {
  static const auto next = real(__interceptor_readv, "readv");
  return fails(call::readv, fd) ? -1 : next(fd, to, n);
}

ssize_t write(int fd, const void* from, std::size_t size) {
  static const auto next = real(__interceptor_write, "write");
  return fails(call::write, fd) ? -1 : next(fd, from, size);
}

ssize_t writev(int fd, const iovec* from, int n) {
  static const auto next = real(__interceptor_writev, "writev");
  return fails(call::writev, fd) ? -1 : next(fd, from, n);
}

int epoll_create1(int flags) noexcept {
  static const auto next = real(__interceptor_epoll_create1, "epoll_create1");
  return fails(call::epoll_create) ? -1 : next(flags);
}

int epoll_ctl(int epoll, int what, int fd, epoll_event* event) noexcept {
  static const auto next = real(__interceptor_epoll_ctl, "epoll_ctl");
  const call c = what == EPOLL_CTL_ADD   ? call::epoll_add
                 : what == EPOLL_CTL_MOD ? call::epoll_mod
                                         : call::epoll_del;
  return fails(c) ? -1 : next(epoll, what, fd, event);
}

int epoll_wait(int epoll, epoll_event* events, int n, int timeout) {
  static const auto next = real(__interceptor_epoll_wait, "epoll_wait");
  return fails(call::epoll_wait) ? -1 : next(epoll, events, n, timeout);
}

int timerfd_create(clockid_t clock, int flags) noexcept {
  static const auto next = real(__interceptor_timerfd_create, "timerfd_create");
  return fails(call::timerfd_create) ? -1 : next(clock, flags);
}

int timerfd_settime(int fd, int flags, const itimerspec* when, itimerspec* before) noexcept {
  static const auto next = real(__interceptor_timerfd_settime, "timerfd_settime");
  return fails(call::timerfd_settime) ? -1 : next(fd, flags, when, before);
}

int eventfd(unsigned value, int flags) noexcept {
  static const auto next = real(__interceptor_eventfd, "eventfd");
  return fails(call::eventfd) ? -1 : next(value, flags);
}

}  // extern "C"
