// Helpers that the tests of vigil-io share.
#pragma once

#include "support/in_runtime.hpp"

#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>

namespace vigil::io_testing {

namespace asio = boost::asio;
using boost::system::error_code;
using unix_socket = asio::local::stream_protocol::socket;

struct socket_pair {
  explicit socket_pair(asio::io_context& context) : near(context), far(context) {
    asio::local::connect_pair(near, far);
  }

  unix_socket near;
  unix_socket far;
};

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
