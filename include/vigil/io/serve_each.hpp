// serve_each: accepts connections, and runs a fiber for one only while bytes from it are
// there to be handled. In between there is neither a fiber nor a stack, so that many
// connections may be idle.
//
//   struct session { int requests = 0; };
//
//   io::serve_each<session>(stopping, acceptor, [](auto& peer, const context&) {
//     if (peer.is_idle()) return io::afterwards::close;
//     boost::system::error_code error;
//     std::size_t end = asio::read_until(
//         peer.stream(), asio::dynamic_buffer(peer.input()), '\n', error);
//     if (error) return io::afterwards::close;             // eof as well
//     asio::write(peer.stream(), asio::buffer(peer.input(), end), error);
//     peer.input().erase(0, end);
//     ++peer.state().requests;
//     return error ? io::afterwards::close : io::afterwards::keep;
//   });
//
// The handler serves one request and returns. It may wait as long as it needs to, also in
// the middle of a request: the connection keeps its fiber until the handler returns.
//
// It accepts, and ends, as io::serve does. Idle connections are closed when no more are
// accepted; requests in progress have limits.grace.
#pragma once

#include <vigil/fiber.hpp>
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/detail/kept_connections.hpp>
#include <vigil/io/serve.hpp>

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace VIGIL_IO {

// afterwards: whether a connection is kept when its handler returns. Thread safety: a
// constant.
enum class afterwards : std::uint8_t { keep, close };

namespace detail {

template <class State, class Stream>
class each_run;

// Makes the stream of a connection.
template <class Handler, class Accepted>
auto wrap(Handler& h, Accepted&& peer) {
  if constexpr (requires { h.wrap(std::move(peer)); }) {
    return h.wrap(std::move(peer));
  } else {
    return deadline_stream<Accepted>(std::move(peer));
  }
}

}  // namespace detail

// connection: one connection of serve_each, with the program's State. Throws what the
// constructors of State and of the stream throw. Lifetime: it lives until it is closed;
// its address does not change.
//
// Thread safety: it belongs to the handler that it was given to, until that returns. No
// other fiber may use it, or be in a call of its stream, afterwards. Shutdown: closed
// with the others if it is idle. Cost: about 1.2 KB while it is idle.
template <class State, class Stream>
class connection final : detail::kept_connection {
 public:
  ~connection() { end(); }

  // The stream: a deadline_stream, or what the handler's wrap() returns. Its deadlines
  // stay as they are set, but none ends the rest between two calls of the handler. A
  // handler may move it out, for another protocol, and returns `close` then.
  Stream& stream() noexcept { return stream_; }

  // Made for the first call, without arguments, and kept until the connection is closed.
  State& state() noexcept { return *state_; }

  // Bytes that were read and not used yet, for functions that read ahead, such as
  // asio::read_until. If some are left when the handler returns `keep`, and it has read
  // or used any, the handler is called again in turn, without a wait: a client may send
  // several requests at once. If none are left, the memory is freed.
  std::string& input() noexcept { return input_; }

  // Whether this call is for limits.idle: nothing has come for so long since the handler
  // returned. If it returns `keep`, the connection may be idle for as long again.
  bool is_idle() const noexcept { return is_idle_; }

 private:
  template <class, class>
  friend class detail::each_run;

  template <class S, class Acceptor, class Handler>
  friend void serve_each(const vigil::context& stopping,
                         Acceptor& acceptor,
                         Handler handler,
                         const serve_limits& limits,
                         const site& from);

  using handler = std::function<afterwards(connection&, const vigil::context&)>;

  connection(detail::server& s, const handler& h, Stream&& peer)
      : kept_connection(s.kept()),
        server_(s),
        handler_(h),
        place_(s.take_place()),
        stream_(std::move(peer)) {}

  void end() noexcept {
    detail::arrival_access::end(stream_);
    this->leave();
  }

  void start(group& fibers) override {
    fibers.go(detail::each_run<State, Stream>(*this), server_.from());
  }

  rest begins_to_rest() {
    if (input_.empty()) std::string().swap(input_);
    this->begins_rest(stream_.get_executor());
    detail::arrival_access::begin(stream_, *this);
    return this->rests();
  }

  // Calls the handler, and again as long as requests are left in the input. A call for
  // bytes that uses none would be followed by another one at once, and so on.
  bool is_kept(const vigil::context& ctx) {
    using detail::arrival_access;
    const auto before = arrival_access::reads(stream_);
    bool has_moved = is_idle_;
    for (;;) {
      const std::size_t had = input_.size();
      const auto reads = arrival_access::reads(stream_);
      if (handler_(*this, ctx) == afterwards::close) return false;
      if (arrival_access::is_moved_out(stream_)) return false;
      const auto now = arrival_access::reads(stream_);
      const bool moves = input_.size() != had || now.successful != reads.successful;
      has_moved = has_moved || moves;
      is_idle_ = false;
      if (moves && !input_.empty()) {
        this_fiber::yield();
        continue;
      }
      if (!has_moved && now.begun == before.begun) detail::throw_has_not_read();
      return has_moved;
    }
  }

  // Returns whether the connection is at rest: the caller has left it. It looks whether
  // bytes are there: an event that Asio has taken from the kernel, for bytes that were
  // read meanwhile, ends the next wait.
  bool serves(const vigil::context& ctx) {
    if (!state_.has_value()) state_.emplace();
    for (;;) {
      const bool is_over_time = this->has_fiber();
      detail::arrival_access::end(stream_);
      const bool is_readable = detail::arrival_access::is_readable(stream_);
      is_idle_ = is_over_time && !is_readable;  // bytes that came late come first
      if ((is_idle_ || is_readable) && !is_kept(ctx)) return false;
      const rest now = begins_to_rest();
      if (now != rest::called) return now == rest::begun;
    }
  }

  detail::server& server_;
  const handler& handler_;
  detail::server::place place_;  // outlives the stream
  Stream stream_;
  std::optional<State> state_;
  std::string input_;
  bool is_idle_ = false;
};

namespace detail {

// The function of a connection's fiber.
template <class State, class Stream>
class each_run {
 public:
  using served = connection<State, Stream>;

  explicit each_run(served& c) noexcept : served_(&c) {}

  each_run(each_run&& other) noexcept : served_(std::exchange(other.served_, nullptr)) {}

  each_run& operator=(each_run&&) = delete;

  ~each_run() {
    if (served_ != nullptr) served_->put_back();
  }

  void operator()(const vigil::context& ctx) {
    std::unique_ptr<served> c(std::exchange(served_, nullptr));
    const server& all = c->server_;
    const std::exception_ptr error = end_of_handler([&] {
      if (c->serves(ctx)) static_cast<void>(c.release());
    });
    c.reset();
    if (error != nullptr) all.report(error);
  }

 private:
  served* served_;
};

}  // namespace detail

// Calls handler(connection, ctx) on a fiber when bytes, or the end of the stream, have
// come. The handler is one object, called by many fibers at a time; it returns
// `afterwards`. `auto&` is the easiest name of its first parameter, which is a
// connection<State, Stream>.
//
// If the handler has a member wrap(socket), that makes the connection's stream, of type
// deadline_stream or tls_stream. It is called where connections are accepted and must not
// wait: a handshake is made by the handler, in its first call. Its exceptions end the
// connection, as the handler's do.
//
// A handler that finds no whole request in the input reads on. If it returns `keep`
// although its reads have brought nothing (the end of the stream, an error, a deadline),
// that is `close`. If it is called for bytes and neither reads from stream() nor uses the
// input, it would be called for ever: that is a std::logic_error, as if it had thrown it.
// An exception of the handler, or of State's constructor, ends the connection, and
// limits.on_error gets it, as for serve. If no fiber can be had, the connection waits for
// one; limits.connections counts idle connections as well.
//
// When no more are accepted, limits.on_stop is called, and then the idle connections are
// closed. A request for which the handler has been called is served. Thread safety: that
// of serve. Lifetime: that of serve; a connection belongs to it. Shutdown: as for serve,
// with the idle connections closed first. Cost: 1.2 KB for an idle connection, and a
// fiber while the handler runs.
//
// The acceptor and its errors are as for serve; limits.idle of zero or less is one more
// std::invalid_argument. Throws what serve throws.
// Waits on a fiber (`stopping`): throws stopped, wrong_place, std::invalid_argument, what
// vigil::go throws, the error of accept.
template <class State, class Acceptor, class Handler>
void serve_each(const vigil::context& stopping,
                Acceptor& acceptor,
                Handler handler,
                const serve_limits& limits = {},
                const site& from = site::current()) {
  using accepted = std::decay_t<decltype(acceptor.async_accept(use_fiber.under(stopping)))>;
  using stream = decltype(detail::wrap(handler, std::declval<accepted>()));
  using served = connection<State, stream>;
  static_assert(std::is_invocable_r_v<afterwards, Handler&, served&, const vigil::context&>,
                "vigil::io::serve_each: the handler takes a connection<State, Stream>& and a "
                "const context&, and returns afterwards");
  const typename served::handler call = std::ref(handler);
  detail::server s(stopping, limits, from);
  s.keep_connections();
  detail::accept_all(s, acceptor, [&](accepted&& peer) {
    std::optional<stream> wrapped;
    const std::exception_ptr error =
        detail::end_of_handler([&] { wrapped.emplace(detail::wrap(handler, std::move(peer))); });
    if (error != nullptr) s.report(error);
    if (!wrapped.has_value()) return;
    std::unique_ptr<served> made(new served(s, call, std::move(*wrapped)));
    const auto now = made->begins_to_rest();
    if (now == served::rest::refused) return;
    served& c = *made.release();
    if (now == served::rest::called) c.put_back();
  });
  s.finish();
}

// The same until the runtime begins to shut down, or the calling fiber is stopped.
template <class State, class Acceptor, class Handler>
void serve_each(Acceptor& acceptor,
                Handler handler,
                const serve_limits& limits = {},
                const site& from = site::current()) {
  serve_each<State>(background(), acceptor, std::move(handler), limits, from);
}

}  // namespace VIGIL_IO
