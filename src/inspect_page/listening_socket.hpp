// listening_socket: the socket of a live page, checked before anything is served on it.
#pragma once

#include <vigil/detail/config.hpp>

#include <string>

#include <sys/types.h>

namespace VIGIL_DETAIL {

class listening_socket {
 public:
  // Makes a Unix socket that only the calling user can reach. Throws as inspect::serve
  // promises.
  static listening_socket at_path(const char* path);

  // Takes a socket over, even if it throws: std::invalid_argument if it does not listen,
  // or if it is not loopback and may not be exposed.
  static listening_socket taken_over(int descriptor, bool may_be_exposed);

  listening_socket(listening_socket&& other) noexcept;
  listening_socket& operator=(listening_socket&&) = delete;
  // Closes it, unless it was released, and removes what at_path() has made.
  ~listening_socket();

  int family() const noexcept { return family_; }

  // Whether other machines may reach it.
  bool is_exposed() const noexcept { return is_exposed_; }

  // "http://127.0.0.1:8091/", or the path of a Unix socket.
  const std::string& address() const noexcept { return address_; }

  // The caller closes the descriptor from now on.
  int release() noexcept;

 private:
  explicit listening_socket(int descriptor) noexcept : descriptor_(descriptor) {}

  void listen_at(const char* path);
  void look(bool may_be_exposed);

  int descriptor_;
  int family_ = 0;
  bool is_exposed_ = false;
  std::string address_;
  std::string made_path_;  // "" if it was not made here
  // The file that was made: at the end the path may name another one.
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace VIGIL_DETAIL
