// A live page at a socket of the process, and its peers: one that asks, whole or in
// pieces, one that leaves, and crowds that are silent or wait for a look.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/page_program.hpp"
#include "inspect_page/page_server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace fuzz {

inline constexpr std::string_view host_name = "vigil.example";

struct manner {
  bool has_small_results = false;  // more is 507
  bool is_impatient = false;
  bool is_crowded = false;
  bool has_program = false;     // which it shows
  bool has_turns = false;       // so many that a recording is more than a socket takes
  bool is_left = false;         // by a peer that does not take its answer
  bool is_asked_twice = false;  // at the same time
  bool has_looks = false;       // of a crowd, all at the same time
  bool is_stopped = false;      // in the end
};

class page_in_memory {
 public:
  explicit page_in_memory(const manner& how)
      : page_(vigil::detail::listening_socket::taken_over(listen(), false),
              options(how),
              settings(how)) {}

  int connect() const {
    const int s = try_to_connect();
    expect(s >= 0, "the page accepts");
    return s;
  }

  const std::string& token() const { return page_.token(); }

  // Stops it, by the context that it has, and waits until it has ended.
  void stop() {
    stop_();
    for (int s = 0; (s = try_to_connect()) >= 0;) {
      ::close(s);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // its thread is real
    }
  }

 private:
  int try_to_connect() const {
    const int s = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect(s >= 0, "there is a socket");
    int error = 0;
    // libFuzzer's alarm may come while the page has as many as it takes.
    while ((error = ::connect(s, general(), size_)) != 0 && errno == EINTR) {
    }
    if (error == 0) return s;
    ::close(s);
    return -1;
  }

  vigil::inspect::page_options options(const manner& how) {
    vigil::inspect::page_options o;
    o.host_name = host_name;
    o.announce = false;
    if (how.is_stopped) {
      const auto [stopping, stop] = vigil::with_cancel(vigil::background());
      o.stopping = stopping;
      stop_ = stop;
    }
    return o;
  }

  static vigil::detail::page_settings settings(const manner& how) {
    vigil::detail::page_settings s;
    if (how.has_small_results) s.result_limit = 8;
    if (how.is_impatient) s.patience = std::chrono::milliseconds(1);
    return s;
  }

  const sockaddr* general() const { return reinterpret_cast<const sockaddr*>(&address_); }

  // At a name that the kernel chooses and no file has.
  int listen() {
    const int s = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address_.sun_family = AF_UNIX;
    expect(s >= 0 && ::bind(s, general(), sizeof address_.sun_family) == 0, "there is a socket");
    expect(::getsockname(s, reinterpret_cast<sockaddr*>(&address_), &size_) == 0, "it has a name");
    expect(::listen(s, 16) == 0, "it listens");
    return s;
  }

  sockaddr_un address_{};
  socklen_t size_ = sizeof address_;
  vigil::cancel_function stop_;
  vigil::detail::page_server page_;
};

inline void send(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // it has answered already
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// Waits until the page has read what was sent, or has no need of it.
inline void until_read(int by) {
  for (int i = 0; i < 1000; ++i) {
    int unread = 0;
    pollfd gone{.fd = by, .events = POLLIN, .revents = 0};
    if (::ioctl(by, SIOCOUTQ, &unread) != 0 || unread == 0 || ::poll(&gone, 1, 0) > 0) return;
    std::this_thread::yield();
  }
}

inline std::string rest_of(int from) {
  std::string all;
  std::array<char, 16384> room;
  ssize_t n = 0;
  // libFuzzer's alarm may come meanwhile.
  while ((n = ::recv(from, room.data(), room.size(), 0)) > 0 || (n < 0 && errno == EINTR))
    all.append(room.data(), static_cast<std::size_t>(std::max(n, ssize_t{0})));
  ::close(from);
  return all;
}

// Leaves as soon as an answer begins to come.
inline void leave_after(const page_in_memory& page, std::string_view bytes) {
  const int s = page.connect();
  send(s, bytes);
  ::shutdown(s, SHUT_WR);
  pollfd answer{.fd = s, .events = POLLIN, .revents = 0};
  while (::poll(&answer, 1, -1) < 0 && errno == EINTR) {
  }
  ::close(s);
}

// `pieces`: their sizes; the rest is sent as one.
inline std::string reply_to(const page_in_memory& page,
                            std::string_view bytes,
                            std::string_view pieces) {
  const int s = page.connect();
  for (const char size : pieces) {
    const std::string_view piece =
        bytes.substr(0, static_cast<std::uint8_t>(size) + std::size_t{1});
    if (piece.empty()) break;
    send(s, piece);
    until_read(s);
    bytes.remove_prefix(piece.size());
  }
  send(s, bytes);
  ::shutdown(s, SHUT_WR);
  return rest_of(s);
}

// More silent peers than the page has places for: the first one has to go.
class crowd {
 public:
  crowd(const page_in_memory& page, std::size_t size) {
    while (peers_.size() < size)
      peers_.push_back(page.connect());
  }

  ~crowd() {
    if (!peers_.empty()) rest_of(std::exchange(peers_.front(), -1));
    for (const int s : peers_)
      if (s >= 0) ::close(s);
  }

  crowd(const crowd&) = delete;
  crowd& operator=(const crowd&) = delete;

 private:
  std::vector<int> peers_;
};

// As many peers as the page has places for, all of which wait for a look.
class busy_crowd {
 public:
  busy_crowd(const page_in_memory& page, const shown_program& program) : walk_(program.walk()) {
    walk_.hold();
    while (peers_.size() < 16) {
      const int s = page.connect();
      peers_.push_back(s);
      send(s, "GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
      until_read(s);
    }
    walk_.wait_for_walk();
  }

  // Lets the page look, and returns the replies.
  std::vector<std::string> replies() {
    walk_.let_go();
    std::vector<std::string> all;
    for (const int s : std::exchange(peers_, {}))
      all.push_back(rest_of(s));
    return all;
  }

 private:
  vigil::testing_support::held_walk& walk_;
  std::vector<int> peers_;
};

}  // namespace fuzz
