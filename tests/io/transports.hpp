// Connected pairs of deadline_streams over each transport, for tests that check the same
// of all of them.
//
//   over_tcp::run(body), over_unix::run(body), over_memory::run(body)
//     body(near, far) on 1 and on 2 workers
//   over_virtual_memory::run(body)
//     the same on virtual time, under several seeds: exact times
//   over_each(body): all four
//   over_tcp::in_runtimes({1, 4}, body), over_tcp::make()
//     for bodies that make their connections themselves
#pragma once

#include "io/io_test.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/memory_stream.hpp>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

namespace vigil::io_testing {

using vigil::clock;
using tcp = asio::ip::tcp;
using tcp_stream = io::deadline_stream<tcp::socket>;
using unix_stream = io::deadline_stream<unix_socket>;
using timed_memory_stream = io::deadline_stream<io::memory_stream>;

constexpr auto no_deadline = clock::time_point::max();
constexpr auto long_ago = clock::time_point::min();
inline const error_code timed_out = asio::error::timed_out;

template <class Stream>
struct connection {
  Stream near;
  Stream far;
};

inline connection<tcp_stream> tcp_connection() {
  auto& c = io::io_context();
  connection<tcp_stream> made{tcp_stream(c), tcp_stream(c)};
  tcp::acceptor a(c, {asio::ip::address_v4::loopback(), 0});
  made.near.next_layer().connect(a.local_endpoint());
  a.accept(made.far.next_layer());
  made.near.next_layer().set_option(tcp::no_delay(true));
  made.far.next_layer().set_option(tcp::no_delay(true));
  return made;
}

inline connection<unix_stream> unix_connection() {
  auto& c = io::io_context();
  connection<unix_stream> made{unix_stream(c), unix_stream(c)};
  asio::local::connect_pair(made.near.next_layer(), made.far.next_layer());
  return made;
}

inline connection<timed_memory_stream> memory_connection() {
  auto [one, other] = io::memory_pipe();
  return {timed_memory_stream(std::move(one)), timed_memory_stream(std::move(other))};
}

// The properties of a transport that the tests need beside its streams.
struct any_transport {
  // Reads and writes go on after a write has timed out.
  static constexpr bool outlives_write_timeouts = true;

  // Closes it so that the peer reads to the end.
  template <class Stream>
  static void finish(Stream& s) {
    s.close();
  }
};

struct of_tcp : any_transport {
  static auto make() { return tcp_connection(); }
};

struct of_unix : any_transport {
  static auto make() { return unix_connection(); }
};

struct of_memory : any_transport {
  static auto make() { return memory_connection(); }
};

// `exact`: time passes at deadlines only. `pause`: long enough for something to have
// happened, if there is a processor for it; it affects only how much the test sees.
template <class Kind>
struct on_real_time : Kind {
  static constexpr bool exact = false;
  static constexpr std::chrono::milliseconds pause{5};

  template <class F>
  static void in_runtimes(std::vector<unsigned> workers, F body) {
    testing_support::in_runtime({.workers = std::move(workers)}, body);
  }

  template <class F>
  static void run(F body) {
    in_runtimes({1, 2}, [&] {
      auto made = Kind::make();
      body(made.near, made.far);
    });
  }
};

template <class Kind>
struct on_virtual_time : Kind {
  static constexpr bool exact = true;
  static constexpr std::chrono::milliseconds pause{100};

  // There is only one.
  template <class F>
  static void in_runtimes(const std::vector<unsigned>&, F body) {
    testing_support::for_each_seed(5, body);
  }

  template <class F>
  static void run(F body) {
    in_runtimes({}, [&] {
      auto made = Kind::make();
      body(made.near, made.far);
    });
  }
};

using over_tcp = on_real_time<of_tcp>;
using over_unix = on_real_time<of_unix>;
using over_memory = on_real_time<of_memory>;
using over_virtual_memory = on_virtual_time<of_memory>;

template <class F>
void over_each(F body) {
  over_virtual_memory::run(body);
  over_memory::run(body);
  over_tcp::run(body);
  over_unix::run(body);
}

template <class Stream>
error_code read_one(Stream& s, std::size_t* got = nullptr) {
  std::array<char, 64> bytes;
  error_code error;
  const std::size_t n = s.read_some(asio::buffer(bytes), error);
  if (got != nullptr) *got = n;
  return error;
}

// Writes until the peer's buffers are full.
template <class Stream>
error_code write_until_error(Stream& s) {
  const std::vector<char> many(1 << 16, 'x');
  error_code error;
  while (!error)
    s.write_some(asio::buffer(many), error);
  return error;
}

}  // namespace vigil::io_testing
