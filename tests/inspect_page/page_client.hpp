// A client of a live page that is no browser: plain sockets, on the test's own thread.
#pragma once

#include <vigil/inspect_page.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace vigil::testing_support {

class descriptor {
 public:
  explicit descriptor(int fd) noexcept : fd_(fd) {}

  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  descriptor& operator=(descriptor&&) = delete;

  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const noexcept { return fd_; }

  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Listens at an address of IPv4, at a port that was free.
inline descriptor listen_at(const char* address) {
  descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in a{};
  a.sin_family = AF_INET;
  REQUIRE(::inet_pton(AF_INET, address, &a.sin_addr) == 1);
  REQUIRE(::bind(s.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
  REQUIRE(::listen(s.get(), 64) == 0);
  return s;
}

inline inspect::live_page page_at(const char* address, inspect::page_options options = {}) {
  options.announce = false;
  return inspect::serve_descriptor(listen_at(address).release(), options);
}

inline inspect::live_page local_page() {
  return page_at("127.0.0.1");
}

// "127.0.0.1:8091" of "http://127.0.0.1:8091/#token=…".
inline std::string host_of(const inspect::live_page& page) {
  const std::string_view address = page.address();
  const std::size_t begin = std::string_view("http://").size();
  return std::string(address.substr(begin, address.find('/', begin) - begin));
}

inline descriptor connect_to(const inspect::live_page& page) {
  if (page.address().front() == '/') {
    descriptor s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    std::memcpy(a.sun_path, page.address().data(), page.address().size());
    REQUIRE(::connect(s.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
    return s;
  }
  const std::string host = host_of(page);
  const std::size_t colon = host.rfind(':');
  descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<std::uint16_t>(std::atoi(host.c_str() + colon + 1)));
  std::string address = host.substr(0, colon);
  if (address == "0.0.0.0") address = "127.0.0.1";
  REQUIRE(::inet_pton(AF_INET, address.c_str(), &a.sin_addr) == 1);
  REQUIRE(::connect(s.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
  return s;
}

// The server may have closed before it has read all.
inline void send_text(const descriptor& to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

struct http_answer {
  int status = 0;  // 0: the connection ended without one
  std::string head;
  std::string body;

  // The value of a field; "" if it is not there.
  std::string field(const std::string& name) const {
    const std::size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

inline http_answer answer_from(const descriptor& from) {
  std::string all;
  char piece[4096];
  ssize_t n = 0;
  while ((n = ::recv(from.get(), piece, sizeof piece, 0)) > 0)
    all.append(piece, static_cast<std::size_t>(n));
  http_answer a;
  const std::size_t end = all.find("\r\n\r\n");
  if (end == std::string::npos) return a;
  a.head = all.substr(0, end + 2);
  a.body = all.substr(end + 4);
  a.status = std::atoi(a.head.c_str() + std::strlen("HTTP/1.1 "));
  return a;
}

inline std::string request(std::string_view method,
                           std::string_view target,
                           std::string_view host,
                           std::string_view fields = {}) {
  std::string text(method);
  text.append(" ").append(target).append(" HTTP/1.1\r\nHost: ").append(host).append("\r\n");
  return text.append(fields).append("\r\n");
}

inline http_answer ask(const inspect::live_page& page, std::string_view text) {
  const descriptor s = connect_to(page);
  send_text(s, text);
  return answer_from(s);
}

inline http_answer get(const inspect::live_page& page, std::string_view target) {
  return ask(page, request("GET", target, "localhost"));
}

inline std::string with_token(const inspect::live_page& page) {
  return "X-Vigil-Token: " + std::string(page.token()) + "\r\n";
}

inline http_answer post(const inspect::live_page& page,
                        std::string_view target,
                        std::string_view fields) {
  return ask(page, request("POST", target, host_of(page), fields));
}

inline http_answer act(const inspect::live_page& page, std::string_view target) {
  return post(page, target, with_token(page));
}

inline bool is_readable(const descriptor& d, int milliseconds) {
  pollfd p{.fd = d.get(), .events = POLLIN, .revents = 0};
  return ::poll(&p, 1, milliseconds) == 1;
}

}  // namespace vigil::testing_support
