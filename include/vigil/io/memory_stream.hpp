// memory_pipe: two connected streams within the program, for tests.
//
//   auto [client, server] = io::memory_pipe();
//   io::deadline_stream<io::memory_stream> c(std::move(client));
//
// Bytes written to one end are read from the other. Each direction keeps up to `capacity`
// bytes; a write beyond that waits. A fiber's wait for an operation (of the stream, of a
// deadline_stream over it, or a composed one such as asio::async_read) is not outside
// work: on virtual time the clock moves on, and fibers that wait for each other are a
// deadlock.
//
// Handlers of callers that are not fibers, and the steps of composed operations, run as
// by asio::post: on their associated executor, otherwise on fibers of the runtime
// (memory_executor.hpp), in an order that the seed replays.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/io/detail/memory_stream.hpp>
#include <vigil/io/memory_executor.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/system/error_code.hpp>

namespace VIGIL_IO {
namespace detail {

struct stream_access;

}  // namespace detail

// memory_stream: one end of a pipe. It is closed when it is moved from. Throws nothing
// but what a token throws, and std::bad_alloc. Thread safety: any fiber or thread may
// call all members of both ends, except move and destruction; of one end one read and one
// write at a time. Lifetime: either end may go first; buffers live until their operation
// has completed. Shutdown: an operation with use_fiber ends by `stopped`. Cost: a lock
// and a copy of the bytes for each operation. Go: net.Pipe, with a buffer.
class memory_stream {
 public:
  using executor_type = memory_executor;

  memory_stream(std::shared_ptr<detail::memory_half> in, std::shared_ptr<detail::memory_half> out)
      : in_(std::move(in)), out_(std::move(out)) {}

  memory_stream(memory_stream&&) noexcept = default;
  memory_stream& operator=(memory_stream&&) = delete;

  ~memory_stream() { close(); }

  executor_type get_executor() const noexcept { return {}; }

  // Ends its operations that wait with operation_aborted, and later ones with
  // bad_descriptor. The other end reads the bytes that are left, then eof; its writes end
  // with broken_pipe. Never fails: the error is for code that is written for sockets.
  void close() {
    if (in_ == nullptr) return;
    in_->close_reader();
    out_->close_writer();
  }

  void close(boost::system::error_code& error) {
    error.clear();
    close();
  }

  // Closes one direction: the other end reads the bytes that are left, then eof. Reading
  // continues.
  void close_write(boost::system::error_code& error) {
    error.clear();
    if (out_ != nullptr) out_->close_writer();
  }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        detail::initiate_memory_operation<true>{in_}, token, buffers);
  }

  enum wait_type { wait_read, wait_write };

  // Waits until a read, or a write, would not wait: bytes, room, eof or an error are
  // there. It counts as a read, or a write: one at a time.
  template <class Token>
  auto async_wait(wait_type for_what, Token&& token) {
    const bool reads = for_what == wait_read;
    return boost::asio::async_initiate<Token, void(boost::system::error_code)>(
        detail::initiate_memory_wait{reads ? in_ : out_, reads}, token);
  }

  // Whether a read would not wait.
  bool is_readable() const { return in_ == nullptr || in_->is_readable(); }

  // Whether a write would not wait.
  bool is_writable() const { return out_ == nullptr || out_->is_writable(); }

  // Ends the operations of this end that wait with operation_aborted. Never fails.
  void cancel(boost::system::error_code& error) {
    error.clear();
    if (in_ != nullptr) in_->cancel_reader();
    if (out_ != nullptr) out_->cancel_writer();
  }

  // The same for those that read, or write.
  void cancel(wait_type of, boost::system::error_code& error) {
    error.clear();
    if (of == wait_read && in_ != nullptr) in_->cancel_reader();
    if (of == wait_write && out_ != nullptr) out_->cancel_writer();
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        detail::initiate_memory_operation<false>{out_}, token, buffers);
  }

 private:
  friend struct detail::stream_access;

  std::shared_ptr<detail::memory_half> in_;
  std::shared_ptr<detail::memory_half> out_;
};

// Makes two connected streams. `capacity` is the number of bytes that each direction
// keeps, at least 1. Throws std::bad_alloc. Thread safety: any thread. Lifetime: that of
// memory_stream. Shutdown: it belongs to no run. Cost: four allocations. Go: net.Pipe.
inline std::pair<memory_stream, memory_stream> memory_pipe(std::size_t capacity = 64 * 1024,
                                                           const site& from = site::current()) {
  auto there = std::make_shared<detail::memory_half>(std::max<std::size_t>(capacity, 1), from);
  auto back = std::make_shared<detail::memory_half>(std::max<std::size_t>(capacity, 1), from);
  return {memory_stream(back, there), memory_stream(there, back)};
}

}  // namespace VIGIL_IO
