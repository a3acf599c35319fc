// serve: accepts connections, and runs a fiber for each.
//
//   tcp::acceptor acceptor(io::context(), {tcp::v4(), 8080});
//   auto [stopping, stop] = with_cancel(background());
//   io::serve(stopping, acceptor, [&, stopping = stopping](tcp::socket peer, const context& ctx) {
//     while (auto request = read_request(peer, use_fiber.under(stopping)))  // idle: may end
//       answer(peer, *request, use_fiber.under(ctx));                      // half-done: may not
//   });
//
// It accepts until `stopping` is done; background() if none is given, so until the
// runtime begins to shut down. Then it closes the acceptor, so that nobody connects and
// is never heard, and the connections that are being served have limits.grace to come
// to an end by themselves. The rest is cut short: ctx is done, and the fibers are asked
// to stop. serve returns when all have ended. It is Go's net/http: Shutdown is to
// cancel `stopping`, Close comes when the grace is over. A program that closes the
// acceptor instead names `stop` as limits.on_stop, so that waits under `stopping` end
// then, too.
//
// If the calling fiber is stopped, serve cuts all short at once, waits for them, and
// throws `stopped`. The acceptor is left as it is.
#pragma once

#include <vigil/context.hpp>
#include <vigil/group.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/sync.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/system/system_error.hpp>

namespace vigil::io::inline VIGIL_ABI {

struct serve_limits {
  // Connections at a time, at least 1; further ones wait in the kernel's backlog.
  std::size_t connections = 10'000;
  // How long connections may go on once no more are accepted. Zero or less: not at
  // all. The shutdown of the runtime waits as long, and up to a second more.
  std::chrono::nanoseconds grace = std::chrono::seconds(10);
  // The wait after an accept for which there were no resources: doubled each time,
  // up to a second (or to itself, if it is longer). More than zero.
  std::chrono::nanoseconds backoff = std::chrono::milliseconds(5);
  // Gets an exception that a handler throws, on that handler's fiber, which may
  // wait; several may call it at a time. It does not get
  // boost::system::system_error and `cancelled`, which are normal ends of
  // connections. If it is empty, or throws itself: options::on_unhandled, as for
  // vigil::go.
  std::function<void(std::exception_ptr)> on_error = {};
  // Called once when no more are accepted: `stopping` is done, the acceptor was closed
  // or broken; not if serve's fiber is stopped. On serve's fiber, as the grace begins and
  // the acceptor is closed: the place to end connections on which nothing goes on. If it
  // takes longer than the grace, that ends with it. Its exceptions go where a handler's
  // errors go.
  std::function<void()> on_stop = {};
};

namespace detail {

// The shutdown of the calling fiber's runtime waits so long.
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

// The loop without its types.
class VIGIL_API server {
 public:
  // Room for one connection; kept until its descriptor is closed.
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

  // Waits until one more may be accepted; false: no more are to be.
  bool has_room();
  // For one connection, after has_room().
  place take_place() noexcept;

  // Starts a fiber. If none can be had the connection is dropped.
  template <class Connection>
  void start(Connection&& c) {
    fibers_.go(std::forward<Connection>(c), from_);
    has_started();
  }

  // For async_accept.
  fiber_token token() { return token_access::reporting(use_fiber.under(stopping_), destroyed_); }

  // In a catch block around accept and start: whether to go on. Exceptions that are not
  // their errors are thrown on.
  template <class Acceptor>
  bool goes_on(const Acceptor& a);

  // No more are accepted: whether it is serve that closes the acceptor. Not if others
  // have ended its accepting: it may have gone, and its descriptor may be another's.
  bool closes_acceptor() const noexcept { return !destroyed_ && !ended_by_others_; }

  // on_stop, then waits for those that are being served. Throws what broke the acceptor.
  void finish();

  // An exception of a handler.
  void report(std::exception_ptr error) const;

  const vigil::context& stopping() const noexcept { return stopping_; }

 private:
  bool goes_on(bool (*is_open)(const void* acceptor), const void* acceptor);
  void has_started() noexcept;
  bool passes(int code);
  void tell_stop() const;

  const announced_grace announced_;  // the last to die
  const vigil::context stopping_;
  const serve_limits& limits_;
  const site from_;
  semaphore places_;
  bool has_place_ = false;
  bool waits_ = false;  // before the next accept
  std::chrono::nanoseconds next_wait_;
  int in_a_row_ = 0;  // accepts that have failed
  std::exception_ptr broken_;
  bool destroyed_ = false;  // the accept, with its io_context
  bool ended_by_others_ = false;
  group fibers_;  // the first to die
};

// False also for an acceptor that does not say.
template <class Acceptor>
bool is_open(const Acceptor& a) {
  if constexpr (requires { a.is_open(); }) {
    return a.is_open();
  } else {
    return false;
  }
}

// Asked in few cases only: where the acceptor is certainly there.
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

template <class Socket, class Handler>
class connection {
 public:
  connection(server& s, Socket&& peer, Handler& handler)
      : server_(&s), handler_(&handler), place_(s.take_place()), peer_(std::move(peer)) {}

  void operator()(const vigil::context& ctx) {
    std::exception_ptr error;
    try {
      if constexpr (std::is_invocable_v<Handler&, Socket, const vigil::context&>) {
        std::invoke(*handler_, std::move(peer_), ctx);
      } else {
        std::invoke(*handler_, std::move(peer_));
      }
    } catch (const stopped&) {
      throw;
    } catch (const cancelled&) {
    } catch (const boost::system::system_error&) {
    } catch (...) {
      error = std::current_exception();
    }
    if (error != nullptr) server_->report(std::move(error));
  }

 private:
  server* server_;
  Handler* handler_;
  server::place place_;  // outlives the socket
  Socket peer_;
};

}  // namespace detail

// handler(socket) or handler(socket, ctx) is called on a fiber of its own for each
// connection, so for many at a time: it is one object for all, kept until serve
// returns. The socket comes by value and is the handler's.
//
// The acceptor is anything with async_accept(token) that gives a socket: of TCP, of
// Unix sockets, io::memory_acceptor. It belongs to serve meanwhile, which closes it
// (if it has close()) when it accepts no more. If its operation is aborted (others have
// closed or cancelled it, its io_context has gone) serve ends as by `stopping`, and
// leaves it as it is.
//
// Errors of accept, as boost::system::system_error or std::system_error, by their
// errno; Go's rule:
//   they pass    the connection was gone before it was accepted (ECONNABORTED,
//                ECONNRESET, EPROTO, EPERM, ENETDOWN, ETIMEDOUT and their like), EINTR:
//                the next accept comes at once, after 16 of them in a row it waits
//   they pass    no descriptors, memory or fiber (EMFILE, ENFILE, ENOBUFS, ENOMEM,
//                ENOSPC, EAGAIN, std::bad_alloc, limit_reached): the next accept waits
//                for limits.backoff; a connection for which no fiber can be had is closed
//   they last    all others (EBADF of an acceptor that is_open, EINVAL, ENOTSOCK,
//                EOPNOTSUPP, what is no errno): serve accepts no more, and throws the
//                error when the connections have ended, as above
//
// When the runtime shuts down while serve runs, it waits for the longer of options::grace
// and limits.grace before it stops all fibers, and no longer than until serve has
// returned; options::stop_limit counts from then. So a server with options::stop_on
// answers the requests in flight when Ctrl-C comes; a second Ctrl-C (200 ms later at
// least: options::stop_on) ends the grace, and everything is stopped at once. The
// shutdown has a second to spare for serve, which cuts the rest after the grace itself,
// and returns.
//
// Throws std::invalid_argument for limits out of range and a nil context.
// Waits on a fiber (`stopping`): throws stopped, wrong_place, std::invalid_argument,
// the error of accept.
template <class Acceptor, class Handler>
void serve(const vigil::context& stopping,
           Acceptor& acceptor,
           Handler handler,
           const serve_limits& limits = {},
           const site& from = site::current()) {
  detail::server s(stopping, limits, from);
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
  using socket = std::decay_t<decltype(acceptor.async_accept(use_fiber.under(stopping)))>;
  static_assert(std::is_invocable_v<Handler&, socket, const vigil::context&> ||
                    std::is_invocable_v<Handler&, socket>,
                "vigil::io::serve: the handler takes the socket, and may take a context");
  const auto accept_one = [&] {
    try {
      s.start(detail::connection<socket, Handler>(s, acceptor.async_accept(s.token()), handler));
      return true;
    } catch (...) {
      return s.goes_on(acceptor);
    }
  };
  while (s.has_room() && accept_one()) {
  }
  if (s.closes_acceptor()) detail::close(acceptor);
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

}  // namespace vigil::io::inline VIGIL_ABI
