// The clients of load.cpp, over plain sockets: one that asks and reads answers, and one
// that sends half a header, byte by byte.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

namespace load_clients {

inline constexpr std::string_view request =
    "GET /hello HTTP/1.1\r\nHost: localhost\r\nUser-Agent: load\r\nAccept: */*\r\n\r\n";
inline constexpr std::string_view half_a_header = "GET /hello HTTP/1.1\r\nX: ";

inline double now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

[[noreturn]] inline void fail(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

inline int connect_to(int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fail("connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

class connection {
 public:
  connection(int port, int epoll, std::uint32_t events = EPOLLIN) : fd_(connect_to(port)) {
    epoll_event e{};
    e.events = events;
    e.data.ptr = this;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd_, &e) != 0) fail("epoll_ctl");
  }

  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  ~connection() { close(fd_); }

  void ask() {
    if (::send(fd_, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size())) {
      fail("send");
    }
  }

  // Reads the bytes that are there. Returns true if they complete an answer; all answers
  // are as long as the first one.
  bool is_answered(int flags = MSG_DONTWAIT) {
    char bytes[4096];
    const ssize_t n = recv(fd_, bytes, sizeof bytes, flags);
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) fail("recv");
    if (size_ == 0) {
      text_.append(bytes, static_cast<std::size_t>(n));
      const auto end = text_.find("\r\n\r\n");
      const auto length = text_.find("Content-Length: ");
      if (end == std::string::npos || length == std::string::npos) return false;
      if (text_.rfind("HTTP/1.1 200", 0) != 0) throw std::runtime_error("no answer: " + text_);
      size_ = end + 4 + std::strtoul(text_.c_str() + length + 16, nullptr, 10);
      got_ = text_.size();
    } else {
      got_ += static_cast<std::size_t>(n);
    }
    if (got_ < size_) return false;
    if (got_ > size_) throw std::runtime_error("an answer is longer than the first one");
    got_ = 0;
    return true;
  }

  // Drops the answers that are there, and returns how many bytes they had.
  std::size_t drop_answers() {
    static char bytes[std::size_t{256} << 10];
    const ssize_t n = recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) fail("recv");
    return static_cast<std::size_t>(n);
  }

  // Sends as many of these requests as the kernel takes. The last one may be sent in
  // part; the next call continues it.
  void pipeline(std::string_view requests) {
    const std::string_view rest = requests.substr(sent_);
    const ssize_t n = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail("send");
    sent_ = (sent_ + static_cast<std::size_t>(n)) % requests.size();
  }

  std::size_t answer_size() const { return size_; }

  std::deque<double> intended;  // open: times of its requests; the first is under way

 private:
  int fd_;
  std::string text_;
  std::size_t size_ = 0;
  std::size_t got_ = 0;
  std::size_t sent_ = 0;
};

// A client that sends half a header, byte by byte.
class slow_client {
 public:
  explicit slow_client(int port) : port_(port) {}

  ~slow_client() {
    if (fd_ >= 0) close(fd_);
  }

  slow_client(const slow_client&) = delete;
  slow_client& operator=(const slow_client&) = delete;

  // Called from time to time. Returns after how many seconds it was cut; 0: it was not.
  double step(double time) {
    if (fd_ < 0) {
      fd_ = connect_to(port_);
      began_ = time;
      sent_ = 0;
    }
    const char byte = sent_ < half_a_header.size() ? half_a_header[sent_] : 'x';
    ++sent_;
    char answer[512];
    const bool is_cut = ::send(fd_, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1 ||
                        recv(fd_, answer, sizeof answer, MSG_DONTWAIT) >= 0;
    if (!is_cut) return 0;
    close(fd_);
    fd_ = -1;
    return time - began_;
  }

 private:
  const int port_;
  int fd_ = -1;
  double began_ = 0;
  std::size_t sent_ = 0;
};

}  // namespace load_clients
