// socket_ends: the two ends of a socket in words, as the kernel tells them at this
// moment. Async-signal-safe.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

struct shown_descriptor {
  enum class kind : std::uint8_t { closed, no_socket, socket };

  int number = -1;
  kind type = kind::closed;
  // tcp, udp, unix, ip (another protocol over IP), other; "" for no socket
  const char* protocol = "";
  bool listens = false;
  // "127.0.0.1:80", "[::1]:80", "/run/socket", "@abstract"; "" if it has none. A path is
  // as its owner made it: not escaped.
  char local[112] = "";
  char peer[112] = "";
};

// Asks the kernel. errno is kept.
void read_descriptor(int number, shown_descriptor& out) noexcept;

}  // namespace VIGIL_DETAIL
