// The system calls with which deadline_stream sets up, tests and reads a socket.
#include <vigil/io/detail/deadline_stream.hpp>

#include <cerrno>
#include <cstring>

#include <boost/asio/error.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

namespace VIGIL_IO_DETAIL {

void set_up_tcp(int socket, bool no_delay) noexcept {
  const int at_once = no_delay ? 1 : 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
  const int says_rest = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_INQ, &says_rest, sizeof says_rest);
}

namespace {

bool has_come(int descriptor, short events) noexcept {
  if (descriptor < 0) return true;  // not open: a transfer says so at once
  pollfd look{descriptor, events, 0};
  return ::poll(&look, 1, 0) != 0;
}

}  // namespace

bool is_readable(int descriptor) noexcept {
  return has_come(descriptor, POLLIN);
}

bool is_writable(int descriptor) noexcept {
  return has_come(descriptor, POLLOUT);
}

namespace {

// The number of bytes that are left to read, or -1: the kernel has not said.
int bytes_left_in(msghdr& message) noexcept {
  const cmsghdr* const said = CMSG_FIRSTHDR(&message);
  if (said == nullptr || said->cmsg_level != SOL_TCP || said->cmsg_type != TCP_CM_INQ) return -1;
  int rest = 0;
  std::memcpy(&rest, CMSG_DATA(said), sizeof rest);
  return rest;
}

}  // namespace

std::size_t receive(
    int socket, iovec* to, std::size_t buffers, bool& is_empty, boost::system::error_code& error) {
  if (buffers == 0 && socket >= 0) {
    error.clear();
    return 0;
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = to;
  message.msg_iovlen = buffers;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(socket, &message, MSG_DONTWAIT);
  if (n < 0) {
    error.assign(errno, boost::system::system_category());
    return 0;
  }
  if (n == 0) {
    error = boost::asio::error::eof;
    return 0;
  }
  error.clear();
  std::size_t room = 0;
  for (std::size_t i = 0; i < buffers; ++i)
    room += to[i].iov_len;
  const auto received = static_cast<std::size_t>(n);
  const int rest = bytes_left_in(message);
  is_empty = rest == 0 || (rest < 0 && received < room);
  return received;
}

}  // namespace VIGIL_IO_DETAIL
