// Shared by the parts of the I/O benchmarks.
#pragma once

#include "harness.hpp"

#include <chrono>
#include <cstddef>
#include <vector>

#include <boost/asio/detail/config.hpp>

namespace bench {

// Raises the limit of descriptors if it can. Returns how many of `wanted` there may be.
std::size_t allowed_descriptors(std::size_t wanted) noexcept;

// One byte there and back over a socket pair, n times.
struct talker {
  const char* key;
  const char* name;
  void (*talk)(std::size_t n);
};

const std::vector<talker>& talkers();

// Runs a server with so many connections, each with a read that has a deadline and an
// entry in a timeout_list. Calls mark(), waits for `look`, and calls mark() again.
void idle_server(std::size_t connections, std::chrono::seconds look, void (*mark)());

// --- io_peers.cpp: on the calling thread
void asio_coroutines_talk(std::size_t n);
double asio_waiting_read_bytes(std::size_t n);
void libuv_talks(std::size_t n);

}  // namespace bench
