// Includes and names that the tests of io::pending share, and operations that the test
// completes itself.
#pragma once

#include "io/io_test.hpp"

#include <vigil/channel.hpp>
#include <vigil/context.hpp>
#include <vigil/io/pending.hpp>
#include <vigil/select.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace vigil::io_testing {

using vigil::io::on_result;
using vigil::io::pending;

inline const error_code was_aborted = asio::error::operation_aborted;

// An operation that completes when the test says so, on the thread that says it.
template <class... Ts>
class by_hand {
 public:
  auto begin() {
    return [this](auto token) {
      return asio::async_initiate<decltype(token), void(error_code, Ts...)>(
          [this](auto handler) {
            auto slot = asio::get_associated_cancellation_slot(handler);
            if (slot.is_connected()) {
              slot.assign([this](asio::cancellation_type_t) {
                ++cancels;
                if (obeys) complete(was_aborted, Ts()...);
              });
            }
            auto kept = std::make_shared<decltype(handler)>(std::move(handler));
            handler_ = [kept](error_code error, Ts... values) {
              std::move (*kept)(error, std::move(values)...);
            };
          },
          token);
    };
  }

  void complete(error_code error, Ts... values) {
    if (handler_) std::exchange(handler_, nullptr)(error, std::move(values)...);
  }

  // As an io_context that is destroyed.
  void drop() { handler_ = nullptr; }

  std::atomic<int> cancels{0};  // one that is seen says that the operation has begun
  bool obeys = true;

 private:
  std::function<void(error_code, Ts...)> handler_;
};

// Throws when it is moved as often as `moves` says.
class throws_when_moved {
 public:
  explicit throws_when_moved(int moves = 1000) noexcept : moves_(moves) {}

  throws_when_moved(const throws_when_moved& other) : moves_(other.moves_ - 1) {
    if (moves_ == 0) throw std::runtime_error("moved");
  }

  throws_when_moved& operator=(const throws_when_moved&) = default;

 private:
  int moves_;
};

template <class Stream>
auto read_all_of(Stream& s, asio::mutable_buffer to) {
  return [&s, to](auto token) { return asio::async_read(s, to, token); };
}

}  // namespace vigil::io_testing
