// An HTTP/1.1 server: a fiber for each request, in straight-line code, and none for a
// connection between two of them. The parser is Boost.Beast's.
//
//   web::server server([](const web::request& in, web::response& out, const auto&) {
//     out.send("hello, " + std::string(in.target()));
//   });
//   server.serve(stopping, acceptor);
//
// The time of a connection:
//
//   idle    ├── options::idle ──┤ closed         that of io::serve_each
//   header  ├── options::header ──┤ 408          from the first byte of a request
//   body    ├── options::body ──┤ 408            from the end of the header
//   answer  ├── options::write ──┤ closed        for each 64 KiB that the client takes;
//                                                twice that if it has taken a part
//
// The deadlines are points in time: bytes that drip in do not move them.
//
// Thread safety: any number of fibers may call all functions at a time, except
// construction and destruction.
#pragma once

#include "date.hpp"
#include "message.hpp"

#include <vigil/context.hpp>
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/serve_each.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>

namespace web {

// A handler waits under `ctx`, which is done when the server has no more time, and when
// the client has gone, which is checked once the handler has taken 10 ms: ctx.cause()
// says how. As in Go, a client that only ends its sending counts as gone; one that has
// sent 16 KiB ahead is no longer watched. An exception of any type answers 500 if nothing
// was sent, and closes the connection. limits.on_error gets it, except for system_error
// and `cancelled`, as in vigil::io::serve.
using handler = std::function<void(const request& in, response& out, const vigil::context& ctx)>;

// Durations must be positive, sizes 256 bytes at least: otherwise the server's
// constructor throws std::invalid_argument.
struct options {
  std::chrono::nanoseconds idle = std::chrono::seconds(120);
  std::chrono::nanoseconds header = std::chrono::seconds(10);
  std::chrono::nanoseconds body = std::chrono::seconds(30);
  std::chrono::nanoseconds write = std::chrono::seconds(30);

  // How long a client that was told of an error, or of the end, may be silent before the
  // connection is closed. The bytes that it still sends are read and dropped, for
  // `body` at most: unread bytes would make the close a reset, which may destroy the
  // answer on its way.
  std::chrono::nanoseconds linger = std::chrono::milliseconds(500);

  // Above this: 431; if the first line alone is: 414, or 501 if it begins with no method.
  std::size_t header_bytes = std::size_t{16} << 10;
  std::size_t body_bytes = std::size_t{1} << 20;  // above this: 413

  // Called for a request with a body when its header has come. If it answers, or sets a
  // status other than 200, the body is not received, a client that waits for
  // 100 Continue is not told to send it, and the connection is closed. Otherwise its
  // response is dropped, and the handler gets the request with the body.
  handler before_body;

  // Sends "Keep-Alive: timeout=…", which is `idle` minus `idle_margin`, in whole seconds
  // rounded down, so it never promises more than is kept; nothing if that is less than a
  // second.
  bool tells_idle = false;
  std::chrono::nanoseconds idle_margin = std::chrono::seconds(1);

  idle_handler keeps_idle;

  // The wall clock of the Date header, see date_header.
  std::function<std::time_t()> wall;
};

// The stream of one connection, of whatever type.
class transport {
 public:
  using time_point = vigil::clock::time_point;
  using error_code = boost::system::error_code;

  virtual std::size_t read(boost::asio::mutable_buffer to, error_code& error) = 0;
  virtual std::size_t write(boost::asio::const_buffer from, error_code& error) = 0;
  // Writes as much as there is room for; otherwise timed_out.
  virtual std::size_t write_now(boost::asio::const_buffer from, error_code& error) = 0;
  virtual void set_read_deadline(time_point t) = 0;
  virtual void set_write_deadline(time_point t) = 0;
  // Ends the sending: the client then reads an end. Returns false if the stream cannot.
  virtual bool end_writing() = 0;

 protected:
  ~transport() = default;
};

template <class Stream>
class transport_over final : public transport {
 public:
  explicit transport_over(vigil::io::deadline_stream<Stream>& s) : stream_(s) {}

  std::size_t read(boost::asio::mutable_buffer to, error_code& error) override {
    return stream_.read_some(to, error);
  }

  std::size_t write(boost::asio::const_buffer from, error_code& error) override {
    return stream_.write_some(from, error);
  }

  std::size_t write_now(boost::asio::const_buffer from, error_code& error) override {
    auto& below = stream_.next_layer();
    if constexpr (requires { below.non_blocking(true, error); }) {
      // Makes the system call, whatever the reactor has heard. The socket is non-blocking
      // since the first read or write.
      const std::size_t n = below.write_some(from, error);
      if (error == boost::asio::error::would_block || error == boost::asio::error::try_again) {
        error = boost::asio::error::timed_out;
      }
      return n;
    } else {
      const auto [e, n] = below.async_write_some(
          from, boost::asio::as_tuple(vigil::io::use_fiber.until(time_point::min())));
      error = e;
      return n;
    }
  }

  void set_read_deadline(time_point t) override { stream_.set_read_deadline(t); }

  void set_write_deadline(time_point t) override { stream_.set_write_deadline(t); }

  bool end_writing() override {
    constexpr bool can = requires { Stream::shutdown_send; } ||
                         requires(Stream& s, error_code& e) { s.close_write(e); };
    if constexpr (can) {
      error_code error;
      stream_.close_write(error);
      return !error;
    } else {
      return false;
    }
  }

 private:
  vigil::io::deadline_stream<Stream>& stream_;
};

class server;
struct workspace;

// session: the part of a connection that stays between two requests. It is made for the
// first bytes; the idle time before them is serve_each's alone.
class session {
 public:
  session() = default;
  ~session();
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  void belongs_to(server& s);

  // Replace the idle handler of the last request, and that of the connection.
  void ask_for_request(idle_handler f);
  void ask_for_connection(idle_handler f);

  // Asks the one, then the other.
  std::optional<bool> keeps_idle() const;

  vigil::clock::time_point idle_since = vigil::clock::now();

 private:
  struct idle_handlers {
    idle_handler of_request;
    idle_handler of_connection;
  };

  void ask(idle_handler idle_handlers::*which, idle_handler f);

  server* server_ = nullptr;
  std::unique_ptr<idle_handlers> asked_;  // if there was one
};

class server {
 public:
  // Must be called on a fiber: throws wrong_place elsewhere. It ends with its run.
  explicit server(handler answer, options how = {});
  ~server();
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  // Accepts and serves until `stopping` is done or the acceptor is closed, then stops,
  // like vigil::io::serve_each, which cuts off connections that have not ended after
  // limits.grace; limits.idle is options::idle. If several calls run at a time, the first
  // to end stops the server for all.
  template <class Acceptor>
  void serve(const vigil::context& stopping,
             Acceptor& acceptor,
             const vigil::io::serve_limits& limits = {}) {
    const vigil::cancellable serving = vigil::with_cancel(stopping);
    const ending_with ends(stopping_.ctx, serving.cancel);
    vigil::io::serve_limits how = limits;
    how.idle = how_.idle;
    how.on_stop = [&] {
      stop();
      if (limits.on_stop) limits.on_stop();
    };
    vigil::io::serve_each<session>(
        serving.ctx,
        acceptor,
        [this]<class Stream>(vigil::io::connection<session, Stream>& peer,
                             const vigil::context& ctx) {
          transport_over t(peer.stream());
          const bool is_kept =
              peer.is_idle() ? is_kept_idle(peer.state()) : answers(t, peer.state(), ctx);
          return is_kept ? vigil::io::afterwards::keep : vigil::io::afterwards::close;
        },
        how);
  }

  // Stops the server for good: idle connections end at once, even those that never asked
  // for anything; requests that have begun to come in are served, and their connections
  // closed.
  void stop();

  bool is_stopping() const { return stopping_.ctx.is_done(); }

  // Those that have sent something.
  std::size_t connections() const { return connections_.load(); }

  std::uint64_t served() const { return served_.load(); }

  const date_header& date() const { return date_; }

 private:
  friend class connection;
  friend class response;
  friend class session;

  // Cancels when a context is done, as long as the object lives.
  class ending_with {
   public:
    ending_with(const vigil::context& done, const vigil::cancel_function& cancel)
        : calls_(vigil::after_func(done, [cancel] { cancel(); })) {}

    ~ending_with() { calls_.stop(); }

    ending_with(const ending_with&) = delete;
    ending_with& operator=(const ending_with&) = delete;

   private:
    const vigil::done_callback calls_;
  };

  bool is_kept_idle(session& s) const;

  // Answers the requests that have come. Returns whether the connection is kept.
  bool answers(transport& t, session& s, const vigil::context& ctx);

  std::unique_ptr<workspace> take_workspace();
  void give_back(std::unique_ptr<workspace> w) noexcept;

  const handler answer_;
  const options how_;
  std::string keep_alive_field_;
  date_header date_;
  const vigil::cancellable stopping_;
  std::atomic<std::uint64_t> served_{0};
  std::atomic<std::size_t> connections_{0};
  std::mutex lock_;  // held across no wait
  std::vector<std::unique_ptr<workspace>> spare_;
};

}  // namespace web
