#include "inspect/socket_ends.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace VIGIL_DETAIL {
namespace {

// inet_ntop() is not async-signal-safe.
class address_text {
 public:
  template <std::size_t N>
  explicit address_text(char (&room)[N]) noexcept : next_(room), end_(room + N - 1) {}

  ~address_text() { *next_ = '\0'; }

  address_text(const address_text&) = delete;
  address_text& operator=(const address_text&) = delete;

  void put(char c) noexcept {
    if (next_ != end_) *next_++ = c;
  }

  void put(const char* s) noexcept {
    while (*s != '\0')
      put(*s++);
  }

  void number(unsigned n, unsigned base = 10) noexcept {
    if (n >= base) number(n / base, base);
    put("0123456789abcdef"[n % base]);
  }

  void ip4(const unsigned char* bytes) noexcept {
    for (int i = 0; i < 4; ++i) {
      if (i != 0) put('.');
      number(bytes[i]);
    }
  }

  // As RFC 5952 has it: the longest row of zeros, of two groups at least, is left out.
  void ip6(const in6_addr& a) noexcept {
    constexpr unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (std::equal(mapped, mapped + sizeof mapped, a.s6_addr)) {
      put("::ffff:");
      ip4(a.s6_addr + sizeof mapped);
      return;
    }
    const auto group = [&a](int i) {
      return static_cast<unsigned>(a.s6_addr[2 * i] << 8 | a.s6_addr[2 * i + 1]);
    };
    int zeros = 8;  // where the row begins
    int length = 1;
    for (int i = 0; i < 8; ++i) {
      int n = 0;
      while (i + n < 8 && group(i + n) == 0)
        ++n;
      if (n <= length) continue;
      zeros = i;
      length = n;
    }
    for (int i = 0; i < 8; ++i) {
      if (i == zeros) {
        put("::");
        i += length - 1;
        continue;
      }
      if (i != 0 && i != zeros + length) put(':');
      number(group(i), 16);
    }
  }

 private:
  char* next_;
  char* const end_;
};

union any_address {
  sockaddr any;
  sockaddr_in ip4;
  sockaddr_in6 ip6;
  sockaddr_un local;
  sockaddr_storage room;
};

void write_unix(const sockaddr_un& a, std::size_t size, address_text& out) noexcept {
  const std::size_t given = std::min(size, sizeof a) - offsetof(sockaddr_un, sun_path);
  if (given == 0) return;
  const bool is_abstract = a.sun_path[0] == '\0';
  if (is_abstract) out.put('@');
  for (std::size_t i = is_abstract ? 1 : 0; i < given; ++i) {
    if (a.sun_path[i] == '\0' && !is_abstract) return;
    out.put(a.sun_path[i] == '\0' ? '@' : a.sun_path[i]);
  }
}

void write_address(const any_address& a, std::size_t size, address_text& out) noexcept {
  if (size < sizeof a.any.sa_family) return;
  switch (a.any.sa_family) {
    case AF_INET:
      out.ip4(reinterpret_cast<const unsigned char*>(&a.ip4.sin_addr));
      break;
    case AF_INET6:
      out.put('[');
      out.ip6(a.ip6.sin6_addr);
      if (a.ip6.sin6_scope_id != 0) {
        out.put('%');
        out.number(a.ip6.sin6_scope_id);
      }
      out.put(']');
      break;
    case AF_UNIX:
      write_unix(a.local, size, out);
      return;
    default:
      return;
  }
  out.put(':');
  out.number(ntohs(a.any.sa_family == AF_INET ? a.ip4.sin_port : a.ip6.sin6_port));
}

int option(int socket, int name) noexcept {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

const char* protocol_of(int socket) noexcept {
  switch (option(socket, SO_DOMAIN)) {
    case AF_UNIX:
      return "unix";
    case AF_INET:
    case AF_INET6:
      break;
    default:
      return "other";
  }
  switch (option(socket, SO_PROTOCOL)) {
    case IPPROTO_TCP:
      return "tcp";
    case IPPROTO_UDP:
      return "udp";
    default:
      return "ip";
  }
}

void ask(int number, shown_descriptor& out) noexcept {
  any_address a;
  socklen_t size = sizeof a;
  if (::getsockname(number, &a.any, &size) != 0) {
    out.type = errno == EBADF ? shown_descriptor::kind::closed : shown_descriptor::kind::no_socket;
    return;
  }
  out.type = shown_descriptor::kind::socket;
  out.protocol = protocol_of(number);
  out.listens = option(number, SO_ACCEPTCONN) > 0;
  {
    address_text local(out.local);
    write_address(a, size, local);
  }
  size = sizeof a;
  if (::getpeername(number, &a.any, &size) != 0) return;
  address_text peer(out.peer);
  write_address(a, size, peer);
}

}  // namespace

void read_descriptor(int number, shown_descriptor& out) noexcept {
  out = {};
  out.number = number;
  const int error = errno;
  ask(number, out);
  errno = error;
}

}  // namespace VIGIL_DETAIL
