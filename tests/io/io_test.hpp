// Includes, names and helpers that the tests of vigil-io share.
#pragma once

#include "support/in_runtime.hpp"

#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

namespace vigil::io_testing {

using namespace std::chrono_literals;
using namespace vigil::testing_support;
namespace asio = boost::asio;
using boost::system::error_code;
using vigil::io::use_fiber;
using unix_socket = asio::local::stream_protocol::socket;

struct socket_pair {
  explicit socket_pair(asio::io_context& context) : near(context), far(context) {
    asio::local::connect_pair(near, far);
  }

  unix_socket near;
  unix_socket far;
};

// Sends a byte there and back, `n` times.
inline void ping_pong(asio::io_context& c, int n) {
  socket_pair s(c);
  auto echo = spawn([&] {
    char byte = 0;
    for (int i = 0; i < n; ++i) {
      asio::async_read(s.far, asio::buffer(&byte, 1), use_fiber);
      asio::async_write(s.far, asio::buffer(&byte, 1), use_fiber);
    }
  });
  for (int i = 0; i < n; ++i) {
    char byte = static_cast<char>(i);
    asio::async_write(s.near, asio::buffer(&byte, 1), use_fiber);
    byte = static_cast<char>(i + 1);
    asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber);
    REQUIRE(byte == static_cast<char>(i));
  }
  echo.join();
}

// The error that f throws.
template <class F>
error_code error_of(F f) {
  try {
    f();
  } catch (const boost::system::system_error& e) {
    return e.code();
  }
  return {};
}

// Runs an io_context on threads, as a caller might, until it is destroyed.
class run_by_threads {
 public:
  run_by_threads(asio::io_context& context, int threads)
      : context_(context), work_(context.get_executor()) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([&context] { context.run(); });
  }

  ~run_by_threads() {
    context_.stop();
    for (auto& t : threads_)
      t.join();
    // Not context_.restart(), which a worker that ends cancelled operations may undo.
    vigil::io::restart(context_);
  }

  run_by_threads(const run_by_threads&) = delete;
  run_by_threads& operator=(const run_by_threads&) = delete;

 private:
  asio::io_context& context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
};

}  // namespace vigil::io_testing
