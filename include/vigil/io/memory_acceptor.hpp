// memory_acceptor: accepts connections within the program, so that servers can be tested
// at exact times, on virtual time.
//
//   io::memory_acceptor acceptor;
//   auto server = spawn([&] { io::serve(acceptor, handle); });
//   io::memory_stream client = acceptor.connect();
//
// Any number of clients may connect; each is connected at once, and waits to be accepted.
// As for memory_stream, a wait for async_accept(use_fiber) is not outside work.
#pragma once

#include <vigil/io/detail/memory_acceptor.hpp>
#include <vigil/io/memory_stream.hpp>

#include <cstddef>
#include <memory>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>

namespace VIGIL_IO {

// memory_acceptor: accepts memory_streams. Throws boost::system::system_error and
// std::bad_alloc from connect(). Thread safety: any fiber or thread may call all members,
// except move and destruction; one accept at a time. Lifetime: its streams may outlive
// it; the destructor closes it. Shutdown: an accept with use_fiber ends by `stopped`.
// Cost: that of a memory_pipe() for each connection.
class memory_acceptor {
 public:
  using executor_type = memory_executor;

  // `capacity` is that of the connections, as for memory_pipe.
  explicit memory_acceptor(std::size_t capacity = 64 * 1024, const site& from = site::current())
      : capacity_(capacity),
        from_(from),
        backlog_(std::make_shared<detail::memory_backlog>(from)) {}

  memory_acceptor(const memory_acceptor&) = delete;
  memory_acceptor& operator=(const memory_acceptor&) = delete;

  ~memory_acceptor() { close(); }

  executor_type get_executor() const noexcept { return {}; }

  bool is_open() const { return backlog_->is_open(); }

  // Returns the client's end. Throws boost::system::system_error (connection_refused)
  // after close(), and std::bad_alloc.
  memory_stream connect() {
    auto [client, server] = memory_pipe(capacity_, from_);
    if (!backlog_->add(std::move(server))) {
      throw boost::system::system_error(boost::asio::error::connection_refused,
                                        "vigil::io::memory_acceptor::connect");
    }
    return std::move(client);
  }

  // Accepts the server's end. The signature is void(error_code, memory_stream).
  template <class Token>
  auto async_accept(Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, memory_stream)>(
        detail::initiate_memory_accept{backlog_}, token);
  }

  // Ends an accept that waits with operation_aborted, and later ones with bad_descriptor.
  // A client that has not been accepted reads eof.
  void close() { backlog_->close(); }

 private:
  std::size_t capacity_;
  site from_;
  std::shared_ptr<detail::memory_backlog> backlog_;
};

}  // namespace VIGIL_IO
