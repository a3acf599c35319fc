#include "inspect_page/listening_socket.hpp"

#include "inspect_page/page_request.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

constexpr int backlog = 16;
constexpr mode_t owner_only = 0600;

[[noreturn]] void throw_error(int code, const std::string& message) {
  throw std::system_error(code, std::generic_category(), "vigil::inspect::serve: " + message);
}

union any_address {
  sockaddr general;
  sockaddr_in v4;
  sockaddr_in6 v6;
  sockaddr_un path;
  sockaddr_storage room;
};

any_address unix_address(const char* path) {
  any_address a{};
  a.path.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  if (length == 0 || length >= sizeof a.path.sun_path) {
    throw std::invalid_argument("vigil::inspect::serve: the path of a Unix socket has from 1 to " +
                                std::to_string(sizeof a.path.sun_path - 1) +
                                " bytes, and this one has " + std::to_string(length));
  }
  std::memcpy(a.path.sun_path, path, length);
  return a;
}

bool bind_to(int descriptor, const any_address& a) noexcept {
  return ::bind(descriptor, &a.general, sizeof a.path) == 0;
}

// Whether the path is a socket at which nobody listens any more.
bool is_left_behind(const any_address& a) noexcept {
  struct stat found {};

  if (::lstat(a.path.sun_path, &found) != 0 || !S_ISSOCK(found.st_mode)) return false;
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return false;
  const bool refused = ::connect(probe, &a.general, sizeof a.path) != 0 && errno == ECONNREFUSED;
  ::close(probe);
  return refused;
}

int option(int descriptor, int name) noexcept {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(descriptor, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

}  // namespace

listening_socket::listening_socket(listening_socket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      family_(other.family_),
      is_exposed_(other.is_exposed_),
      address_(std::move(other.address_)),
      made_path_(std::exchange(other.made_path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

listening_socket::~listening_socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (made_path_.empty()) return;

  struct stat found {};

  if (::lstat(made_path_.c_str(), &found) == 0 && found.st_dev == device_ &&
      found.st_ino == inode_) {
    ::unlink(made_path_.c_str());
  }
}

int listening_socket::release() noexcept {
  return std::exchange(descriptor_, -1);
}

listening_socket listening_socket::at_path(const char* path) {
  listening_socket s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (s.descriptor_ < 0) throw_error(errno, "there is no socket to be had");
  s.listen_at(path);
  return s;
}

void listening_socket::listen_at(const char* path) {
  const any_address a = unix_address(path);
  // The file gets the mode of the socket, less the process's mask: there is no moment in
  // which others could connect.
  if (::fchmod(descriptor_, owner_only) != 0) throw_error(errno, "the socket gets no mode");
  bool is_bound = bind_to(descriptor_, a);
  if (!is_bound && errno == EADDRINUSE && is_left_behind(a)) {
    ::unlink(path);
    is_bound = bind_to(descriptor_, a);
  }
  if (!is_bound) {
    const int code = errno;
    throw_error(code,
                code == EADDRINUSE
                    ? std::string(path) + " is another file, or somebody listens there"
                    : std::string(path) + " cannot be made; its folder must be there and writable");
  }

  struct stat made {};

  if (::lstat(path, &made) != 0) throw_error(errno, std::string(path) + " has gone");
  made_path_ = path;
  device_ = made.st_dev;
  inode_ = made.st_ino;
  if ((made.st_mode & 077) != 0) {
    throw_error(EPERM, std::string(path) + ": this file system lets others reach the socket");
  }
  if (::listen(descriptor_, backlog) != 0) throw_error(errno, "the socket cannot listen");
  family_ = AF_UNIX;
  address_ = path;
}

listening_socket listening_socket::taken_over(int descriptor, bool may_be_exposed) {
  listening_socket s(descriptor);
  s.look(may_be_exposed);
  return s;
}

void listening_socket::look(bool may_be_exposed) {
  if (option(descriptor_, SO_ACCEPTCONN) != 1 || option(descriptor_, SO_TYPE) != SOCK_STREAM) {
    throw std::invalid_argument(
        "vigil::inspect::serve: this is no listening stream socket; bind it and call listen() "
        "first");
  }
  any_address a{};
  socklen_t size = sizeof a;
  if (::getsockname(descriptor_, &a.general, &size) != 0) {
    throw_error(errno, "the socket has no address");
  }
  family_ = a.general.sa_family;
  if (family_ == AF_UNIX) {
    const std::size_t length = size - offsetof(sockaddr_un, sun_path);
    const bool has_path = length > 0 && a.path.sun_path[0] != '\0';
    address_ = has_path ? std::string(a.path.sun_path, ::strnlen(a.path.sun_path, length))
                        : "a Unix socket without a path";
    return;
  }
  char text[INET6_ADDRSTRLEN] = "";
  unsigned port = 0;
  if (family_ == AF_INET) {
    is_exposed_ = !is_loopback(a.v4.sin_addr);
    ::inet_ntop(AF_INET, &a.v4.sin_addr, text, sizeof text);
    port = ntohs(a.v4.sin_port);
    address_ = std::string("http://") + text;
  } else if (family_ == AF_INET6) {
    is_exposed_ = !is_loopback(a.v6.sin6_addr);
    ::inet_ntop(AF_INET6, &a.v6.sin6_addr, text, sizeof text);
    port = ntohs(a.v6.sin6_port);
    address_ = std::string("http://[") + text + "]";
  } else {
    throw std::invalid_argument("vigil::inspect::serve: the socket is neither TCP nor Unix");
  }
  address_ += ":" + std::to_string(port) + "/";
  if (is_exposed_ && !may_be_exposed) {
    throw std::invalid_argument(
        "vigil::inspect::serve: other machines can reach " + address_ +
        "; listen at 127.0.0.1 or at a Unix socket, or say page_options::expose_to_network");
  }
}

}  // namespace VIGIL_DETAIL
