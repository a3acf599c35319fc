// serve: accepts connections, and runs a fiber for each.
//
//   tcp::acceptor acceptor(io::io_context(), {tcp::v4(), 8080});
//   auto [stopping, stop] = with_cancel(background());
//   io::serve(stopping, acceptor, [&, stopping = stopping](tcp::socket peer, const context& ctx) {
//     while (auto request = read_request(peer, use_fiber.under(stopping)))  // idle: may end
//       answer(peer, *request, use_fiber.under(ctx));                      // half-done: may not
//   });
//
// It accepts until `stopping` is done; without `stopping`, until the runtime begins to
// shut down. Then it closes the acceptor, so that no client connects in vain, and gives
// the connections in progress limits.grace to end by themselves. After that ctx is done,
// and the remaining fibers are asked to stop. serve returns when all have ended.
//
// In terms of Go's net/http: cancelling `stopping` is Shutdown, and Close follows when
// the grace is over. It may be cancelled by any fiber or thread.
#pragma once

#include <vigil/context.hpp>
#include <vigil/group.hpp>
#include <vigil/io/detail/kept_connections.hpp>
#include <vigil/io/detail/shown_object.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/sync.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/system/system_error.hpp>

namespace VIGIL_IO {

// serve_limits: the limits of serve and serve_each. Throws what a copy of its functions
// throws; serve refuses values out of range. Thread safety: a plain value; its functions
// may be called by several fibers at a time. Lifetime: it outlives the call, which keeps
// no copy.
struct serve_limits {
  // The number of connections at a time, at least 1. Further ones wait in the kernel's
  // backlog.
  std::size_t connections = 10'000;
  // How long connections may continue once no more are accepted; zero or less means not
  // at all. The shutdown of the runtime waits as long, plus up to a second.
  std::chrono::nanoseconds grace = std::chrono::seconds(10);
  // The wait after an accept for which resources were missing, doubled each time, up to a
  // second (or to itself, if it is longer). Must be positive.
  std::chrono::nanoseconds backoff = std::chrono::milliseconds(5);
  // Gets an exception that a handler throws, on that handler's fiber, where it may wait.
  // It may be called several times at once. boost::system::system_error and `cancelled`
  // do not come here: they are normal ends of connections. If it is empty, or throws
  // itself, the exception goes to options::on_unhandled, as for vigil::go.
  std::function<void(std::exception_ptr)> on_error = {};
  // serve_each: how long a connection may be idle before its handler is asked whether it
  // is kept; must be positive. serve has no use for it.
  std::chrono::nanoseconds idle = std::chrono::minutes(2);
  // Called once, on serve's fiber, when no more connections are accepted because
  // `stopping` is done or the acceptor was closed or has failed; not if serve's fiber is
  // stopped. It may close the acceptor. It runs as the grace begins, and is the place to
  // end idle connections. If it takes longer than the grace, the grace lasts until it
  // returns. Its exceptions go where those of handlers go.
  std::function<void()> on_stop = {};
};

namespace detail {

// Makes the shutdown of the calling fiber's runtime wait for this grace.
class VIGIL_API announced_grace {
 public:
  explicit announced_grace(std::chrono::nanoseconds length);
  ~announced_grace();
  announced_grace(const announced_grace&) = delete;
  announced_grace& operator=(const announced_grace&) = delete;

 private:
  struct part;

  const std::unique_ptr<part> part_;
};

// The untyped part of the loop.
class VIGIL_API server {
 public:
  // The room for one connection, kept until its descriptor is closed.
  class place {
   public:
    explicit place(semaphore& s) noexcept : taken_from_(&s) {}

    place(place&& other) noexcept : taken_from_(std::exchange(other.taken_from_, nullptr)) {}

    place& operator=(place&&) = delete;

    ~place() {
      if (taken_from_ != nullptr) taken_from_->release();
    }

   private:
    semaphore* taken_from_;
  };

  // Throws std::invalid_argument.
  server(const vigil::context& stopping, const serve_limits& limits, const site& from);
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  // Waits until one more may be accepted. Returns false if no more are to be.
  bool has_room();
  // For one connection, after has_room().
  place take_place() noexcept;

  // Starts a fiber. If there is none, the connection is dropped.
  template <class Connection>
  void start(Connection&& c) {
    fibers_.go(std::forward<Connection>(c), from_);
  }

  void has_started() noexcept;

  // For serve_each, before the first accept. Throws std::invalid_argument.
  void keep_connections();

  kept_connections& kept() noexcept { return *kept_; }

  const site& from() const noexcept { return from_; }

  // For async_accept.
  template <class Acceptor>
  fiber_token token(Acceptor& a) {
    return token_access::reporting(use_fiber.under(stopping_), destroyed_, shown_object(a));
  }

  // Called in a catch block around accept and start; returns whether to continue.
  // Rethrows exceptions that are not errors of these two.
  template <class Acceptor>
  bool goes_on(const Acceptor& a);

  // Whether serve closes the acceptor when no more are accepted. Not if others have ended
  // the accepting: the acceptor may be gone, and its descriptor may belong to another
  // object.
  bool closes_acceptor() const noexcept { return !destroyed_ && !ended_by_others_; }

  // Calls on_stop, then waits for the connections in progress. Throws the error that
  // broke the acceptor.
  void finish();

  // Reports an exception of a handler.
  void report(std::exception_ptr error) const;

  const vigil::context& stopping() const noexcept { return stopping_; }

 private:
  bool goes_on(bool (*is_open)(const void* acceptor), const void* acceptor);
  bool passes(int code);
  void tell_stop() const;

  const announced_grace announced_;  // is destroyed last
  const vigil::context stopping_;
  const serve_limits& limits_;
  const site from_;
  semaphore places_;
  bool has_place_ = false;
  bool waits_ = false;  // before the next accept
  std::chrono::nanoseconds next_wait_;
  int in_a_row_ = 0;  // accepts in a row that have failed
  std::exception_ptr broken_;
  bool destroyed_ = false;  // the accept was destroyed, with its io_context
  bool ended_by_others_ = false;
  std::optional<kept_connections> kept_;
  group fibers_;  // is destroyed first
};

// Returns false also for an acceptor without is_open().
template <class Acceptor>
bool is_open(const Acceptor& a) {
  if constexpr (requires { a.is_open(); }) {
    return a.is_open();
  } else {
    return false;
  }
}

// Asked only in the few cases in which the acceptor certainly exists.
template <class Acceptor>
bool server::goes_on(const Acceptor& a) {
  return goes_on([](const void* p) { return is_open(*static_cast<const Acceptor*>(p)); }, &a);
}

template <class Acceptor>
void close(Acceptor& a) {
  boost::system::error_code ignored;
  if constexpr (requires { a.close(ignored); }) {
    a.close(ignored);
  } else if constexpr (requires { a.close(); }) {
    try {
      a.close();
    } catch (const boost::system::system_error&) {
    }
  }
}

// Accepts until no more are to be accepted. Calls take(connection) for each, which may
// throw what an accept may.
template <class Acceptor, class Take>
void accept_all(server& s, Acceptor& acceptor, Take take) {
  if constexpr (requires { acceptor.is_open(); }) {
    if (!acceptor.is_open()) {
      throw boost::system::system_error(boost::asio::error::bad_descriptor, "vigil::io::serve");
    }
  }
  // Otherwise Asio drops such an accept, and forgets to look for the one after it.
  if constexpr (requires(boost::asio::socket_base::enable_connection_aborted on) {
                  acceptor.set_option(on);
                }) {
    acceptor.set_option(boost::asio::socket_base::enable_connection_aborted(true));
  }
  const auto accept_one = [&] {
    try {
      take(acceptor.async_accept(s.token(acceptor)));
      s.has_started();
      return true;
    } catch (...) {
      return s.goes_on(acceptor);
    }
  };
  while (s.has_room() && accept_one()) {
  }
  if (s.closes_acceptor()) close(acceptor);
}

// Runs a handler. Returns its exception, unless that is a normal end of a connection.
template <class F>
std::exception_ptr end_of_handler(F run) {
  try {
    run();
  } catch (const stopped&) {
    throw;
  } catch (const cancelled&) {
  } catch (const boost::system::system_error&) {
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

template <class Socket, class Handler>
class served_socket {
 public:
  served_socket(server& s, Socket&& peer, Handler& handler)
      : server_(&s), handler_(&handler), place_(s.take_place()), peer_(std::move(peer)) {}

  void operator()(const vigil::context& ctx) {
    std::exception_ptr error = end_of_handler([&] {
      if constexpr (std::is_invocable_v<Handler&, Socket, const vigil::context&>) {
        std::invoke(*handler_, std::move(peer_), ctx);
      } else {
        std::invoke(*handler_, std::move(peer_));
      }
    });
    if (error != nullptr) server_->report(std::move(error));
  }

 private:
  server* server_;
  Handler* handler_;
  server::place place_;  // outlives the socket
  Socket peer_;
};

}  // namespace detail

// Calls handler(socket) or handler(socket, ctx) on a fiber for each connection. The
// handler is one object, kept until serve returns and called by many fibers at a time.
// The socket is passed by value.
//
// The acceptor may be anything with async_accept(token) that returns a socket: for TCP,
// for Unix sockets, io::memory_acceptor. It belongs to serve, which closes it (if it has
// close()) when it accepts no more. If its operation is aborted (because it was closed or
// cancelled where that is allowed, see below, or its io_context has gone), serve ends as
// if `stopping` were done, but leaves the acceptor alone; limits.on_stop may then cancel
// `stopping`, for the waits under it.
//
// Errors of accept, as boost::system::system_error or std::system_error, are judged by
// their errno, as in Go:
//   transient    the connection was gone before it was accepted (ECONNABORTED, ECONNRESET,
//                EPROTO, EPERM, ENETDOWN, ETIMEDOUT and the like), or EINTR: the next
//                accept follows at once; after 16 such errors in a row it waits
//   resources    no descriptors, memory or fiber (EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC,
//                EAGAIN, std::bad_alloc, limit_reached): the next accept waits for
//                limits.backoff; a connection that can get no fiber is closed
//   permanent    all others (EBADF of an acceptor that is_open, EINVAL, ENOTSOCK,
//                EOPNOTSUPP, anything that is not an errno): serve accepts no more, and
//                throws the error when the connections have ended as above
//
// Shutdown: the runtime waits for the longer of options::grace and limits.grace before it
// stops all fibers, but no longer than serve takes; options::stop_limit counts from then.
// The five seconds of a grace that is not given do not lengthen limits.grace. So a server
// with options::stop_on answers the requests in progress when Ctrl-C comes. A second
// Ctrl-C, at least 200 ms later, ends the grace. The shutdown allows one more second, in
// which serve itself cuts off the rest and returns. If the calling fiber is stopped,
// serve stops all connections at once, waits for them, and throws `stopped`. It leaves
// the acceptor as it is.
//
// Throws std::invalid_argument for limits out of range and a nil context. Thread safety:
// the acceptor is serve's alone while it runs. Two threads must not use an object of
// Asio's at once, so no other fiber may close an acceptor of Asio's, cancel it or even
// ask for its endpoint, unless there is one worker and no thread of your own runs the
// io_context. Any fiber or thread may close a memory_acceptor. Lifetime: the acceptor
// outlives the call; no handler does. Cost: a fiber and its stack for each connection.
// Go: http.Server.Serve, Shutdown.
// Waits on a fiber (`stopping`): throws stopped, wrong_place, std::invalid_argument, the
// error of accept.
template <class Acceptor, class Handler>
void serve(const vigil::context& stopping,
           Acceptor& acceptor,
           Handler handler,
           const serve_limits& limits = {},
           const site& from = site::current()) {
  using socket = std::decay_t<decltype(acceptor.async_accept(use_fiber.under(stopping)))>;
  static_assert(std::is_invocable_v<Handler&, socket, const vigil::context&> ||
                    std::is_invocable_v<Handler&, socket>,
                "vigil::io::serve: the handler takes the socket, and may take a context");
  detail::server s(stopping, limits, from);
  detail::accept_all(s, acceptor, [&](socket&& peer) {
    s.start(detail::served_socket<socket, Handler>(s, std::move(peer), handler));
  });
  s.finish();
}

// The same until the runtime begins to shut down, or the calling fiber is stopped.
template <class Acceptor, class Handler>
void serve(Acceptor& acceptor,
           Handler handler,
           const serve_limits& limits = {},
           const site& from = site::current()) {
  serve(background(), acceptor, std::move(handler), limits, from);
}

}  // namespace VIGIL_IO
