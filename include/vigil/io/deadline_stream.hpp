// deadline_stream<Stream>: a stream with deadlines, like a connection of Go's net.
//
//   io::deadline_stream<tcp::socket> peer(acceptor.async_accept(use_fiber));
//   peer.set_deadline(clock::now() + 10s);
//   std::size_t n = peer.read_some(buffer);       // the fiber waits
//   boost::asio::read_until(peer, text, '\n');    // all that take a SyncReadStream
//
// A deadline is a point in time and stays until it is changed. Once it has passed, each
// call fails at once with boost::asio::error::timed_out, even if it could have been
// served; the message says which deadline it was. A later deadline makes the stream as
// good as new. A deadline may be changed while a call waits; moved into the past, it ends
// that call. When a call has returned, nothing touches its buffer any more.
//
// read_some and write_some are those of a SyncReadStream and a SyncWriteStream, so
// asio::read, asio::write, asio::read_until and Beast's synchronous functions work on it,
// and wait as fibers do. For TLS see tls_stream (tls.hpp).
//
// Thread safety: read_some, write_some, close and the setters may be called by several
// fibers at a time, the setters by plain threads too. Reads are served one after the
// other, and so are writes; one read and one write may be in progress together if the
// stream below allows that (sockets, pipes and memory_stream do, boost::asio::ssl::stream
// does not). Constructing, moving and destroying it needs exclusive access.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/fiber.hpp>
#include <vigil/io/detail/deadline_stream.hpp>
#include <vigil/io/idle_list.hpp>
#include <vigil/io/use_fiber.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/system/system_error.hpp>

namespace vigil::io::inline VIGIL_ABI {
namespace detail {

template <class Stream>
class tls_core;

}  // namespace detail

// A stream that has non_blocking(), such as a socket, is tried first, and waited for only
// if it would block. A read after one that left room in its buffer, and so took
// everything, waits at once.
template <class Stream>
class deadline_stream {
 public:
  using next_layer_type = Stream;
  using executor_type = typename Stream::executor_type;

  template <class... Args>
    requires std::is_constructible_v<Stream, Args...>
  explicit deadline_stream(Args&&... args)
      : stream_(std::forward<Args>(args)...), sides_(std::make_unique<detail::stream_sides>()) {}

  deadline_stream(deadline_stream&&) = default;
  deadline_stream& operator=(deadline_stream&&) = default;

  // For use while no call is in progress. It is non-blocking after the first call.
  next_layer_type& next_layer() noexcept { return stream_; }

  const next_layer_type& next_layer() const noexcept { return stream_; }

  executor_type get_executor() { return stream_.get_executor(); }

  // time_point::max(), the initial value, means no deadline.
  template <vigil::detail::time_point_like Time>
  void set_read_deadline(const Time& t) {
    sides_->read.deadline.set(vigil::detail::to_deadline(t));
  }

  template <vigil::detail::time_point_like Time>
  void set_write_deadline(const Time& t) {
    sides_->write.deadline.set(vigil::detail::to_deadline(t));
  }

  template <vigil::detail::time_point_like Time>
  void set_deadline(const Time& t) {
    set_read_deadline(t);
    set_write_deadline(t);
  }

  // Sets whether small writes over TCP are sent at once (TCP_NODELAY), as by default and
  // in Go, or may wait until the peer acknowledges earlier ones (Nagle's algorithm).
  // Applies from the next read or write, and to a socket that is opened below later.
  void set_no_delay(bool at_once) {
    const std::lock_guard guard(sides_->setup);
    sides_->no_delay = at_once;
    sides_->has_options = false;
  }

  // Makes reads and writes that wait also end once nothing has been read or written for
  // the list's duration, counted from now. That ends only the call, and bytes that have
  // arrived by then are returned instead. To be called once, before the first read or
  // write. The list must outlive the calls of this stream.
  void set_idle_list(idle_list& list) noexcept {
    sides_->joined = &list;
    list.progress(sides_->idle);
  }

  // Waits for at least one byte; returns at once if the buffers are empty. `error` is
  // that of async_read_some, timed_out, operation_aborted if close() ended it, or
  // bad_descriptor after close().
  // Waits on a fiber (the read deadline): throws stopped, wrong_place.
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers, boost::system::error_code& error) {
    return read_under(sides_->read, buffers, error);
  }

  // Waits on a fiber (the write deadline): throws stopped, wrong_place.
  template <class Buffers>
  std::size_t write_some(const Buffers& buffers, boost::system::error_code& error) {
    return transfer(
        sides_->write,
        sides_->write.deadline,
        0,
        error,
        [&](auto& s, auto& e) { return s.write_some(buffers, e); },
        [&](auto token) { return stream_.async_write_some(buffers, token); });
  }

  // The same two; throw boost::system::system_error.
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers) {
    return detail::or_throw("read_some", [&](auto& error) { return read_some(buffers, error); });
  }

  template <class Buffers>
  std::size_t write_some(const Buffers& buffers) {
    return detail::or_throw("write_some", [&](auto& error) { return write_some(buffers, error); });
  }

  // The error with which a call would now fail at once: timed_out, bad_descriptor after
  // close(), or none.
  boost::system::error_code read_error() const noexcept { return sides_->read.deadline.error(); }

  boost::system::error_code write_error() const noexcept { return sides_->write.deadline.error(); }

  // Ends writing: the peer reads eof, and reading continues. For streams with shutdown(),
  // and memory_stream. Waits only for the writes that other fibers have begun before,
  // each of which the write deadline ends.
  // Waits on a fiber (the write deadline): throws stopped, wrong_place.
  void close_write(boost::system::error_code& error) {
    const detail::turns::call turn(sides_->write.calls);
    if constexpr (requires { stream_.close_write(error); }) {
      stream_.close_write(error);
    } else {
      stream_.shutdown(boost::asio::socket_base::shutdown_send, error);
    }
  }

  // Ends the calls that wait, waits until they have returned, and closes the stream
  // below. A second call does nothing.
  // Waits on a fiber (the calls that it ends): throws wrong_place.
  void close() {
    sides_->read.deadline.close();
    sides_->write.deadline.close();
    const std::scoped_lock all(sides_->read.calls.between_calls(),
                               sides_->write.calls.between_calls());
    timeout_list::remove(sides_->idle);
    if constexpr (requires(boost::system::error_code e) { stream_.close(e); }) {
      boost::system::error_code ignored;
      stream_.close(ignored);
    }
  }

 private:
  friend class detail::tls_core<Stream>;

  using side = detail::stream_side;

  // Writes as much as there is room for, or fails with would_block. Caller: nothing else
  // writes.
  std::size_t write_now(const boost::asio::const_buffer& from, boost::system::error_code& error) {
    const detail::turns::call turn(sides_->write.calls);
    error = write_error();
    if (error) return 0;
    if constexpr (can_try) {
      set_up();
      const auto try_it = [&](auto& s, auto& e) { return s.write_some(from, e); };
      return transferred(try_on(try_it, error));
    } else {
      const auto [e, n] = stream_.async_write_some(
          from, boost::asio::as_tuple(use_fiber.until(clock::time_point::min())));
      error = e == boost::asio::error::timed_out ? boost::asio::error::would_block : e;
      return transferred(n);
    }
  }

  side& read_side() noexcept { return sides_->read; }

  side& write_side() noexcept { return sides_->write; }

  clock::time_point write_deadline() const noexcept {
    return clock::time_point(clock::duration(sides_->write.deadline.value()));
  }

  // read_some under the deadline of either side; no other call may wait under that
  // deadline.
  template <class Buffers>
  std::size_t read_under(side& until, const Buffers& buffers, boost::system::error_code& error) {
    return transfer(
        sides_->read,
        until.deadline,
        boost::asio::buffer_size(buffers),
        error,
        [&](auto& s, auto& e) { return s.read_some(buffers, e); },
        [&](auto token) { return stream_.async_read_some(buffers, token); });
  }

  // After this many calls in a row that were served at once, one yields first.
  static constexpr unsigned others_come_first = 64;

  static constexpr bool can_try = requires(Stream& s, boost::system::error_code e) {
    s.non_blocking(true, e);
    static_cast<bool>(s.non_blocking());
  };

  // Makes the stream non-blocking, whichever side comes first. Checked each time, because
  // another socket may have been opened through next_layer().
  bool set_up() {
    boost::system::error_code error;
    if constexpr (can_try) {
      const std::lock_guard guard(sides_->setup);
      const bool is_new = !stream_.non_blocking();
      if (is_new) stream_.non_blocking(true, error);
      if (!error && (is_new || !sides_->has_options)) {
        sides_->has_options = true;
        if constexpr (detail::may_be_tcp<Stream> &&
                      requires { ::setsockopt(stream_.native_handle(), 0, 0, nullptr, 0); }) {
          // May fail, because a generic socket need not be a TCP one.
          const int at_once = sides_->no_delay ? 1 : 0;
          ::setsockopt(stream_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
        }
      }
    }
    return !error;  // not open: the operation itself reports it
  }

  // `room`: the size of the buffer of a read; 0 for a write.
  template <class Try, class Wait>
  std::size_t transfer(side& s,
                       detail::movable_deadline& until,
                       std::size_t room,
                       boost::system::error_code& error,
                       Try try_it,
                       Wait wait) {
    const detail::turns::call turn(s.calls);
    if (can_try && ++s.at_once % others_come_first == 0) this_fiber::yield();
    error = until.error();
    if (error) return 0;
    if constexpr (can_try) {
      if (set_up() && !std::exchange(s.was_emptied, false)) {
        const std::size_t n = try_on(try_it, error);
        if (!would_block(error)) {
          s.was_emptied = n < room;
          return transferred(n);
        }
      }
    }
    s.at_once = 0;
    if (sides_->joined != nullptr) sides_->joined->begin_wait(sides_->idle);
    const auto [e, n] = wait(boost::asio::as_tuple(detail::movable_token{&until}));
    error = e;
    s.was_emptied = !e && n < room;
    if constexpr (can_try) {
      // Ended by the idle list, or by TCP itself: bytes that have arrived come first, and
      // no other error replaces this one.
      if (sides_->joined != nullptr && e == boost::asio::error::timed_out && !until.is_over()) {
        if (const std::size_t last = try_on(try_it, error)) return transferred(last);
        error = e;
      }
    }
    return transferred(n);
  }

  template <class Try>
  std::size_t try_on(Try& try_it, boost::system::error_code& error) {
    std::size_t n = 0;
    do {
      n = try_it(stream_, error);
    } while (error == boost::asio::error::interrupted);
    return n;
  }

  static bool would_block(const boost::system::error_code& error) noexcept {
    return error == boost::asio::error::would_block || error == boost::asio::error::try_again;
  }

  std::size_t transferred(std::size_t n) noexcept {
    if (n != 0 && sides_->joined != nullptr) sides_->joined->progress(sides_->idle);
    return n;
  }

  Stream stream_;
  std::unique_ptr<detail::stream_sides> sides_;
};

}  // namespace vigil::io::inline VIGIL_ABI
