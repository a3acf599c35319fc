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
// and wait as fibers do. For TLS see tls_stream (tls.hpp). A socket's protocol is one of
// streams: at the end of SOCK_SEQPACKET Asio says 0 bytes and no error.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/fiber.hpp>
#include <vigil/io/detail/deadline_stream.hpp>
#include <vigil/io/detail/shown_object.hpp>
#include <vigil/io/idle_list.hpp>
#include <vigil/io/use_fiber.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/system/system_error.hpp>

namespace VIGIL_IO {
namespace detail {

template <class Stream>
class tls_core;

struct arrival_access;
struct stream_access;

}  // namespace detail

// deadline_stream<Stream>: a Stream whose reads and writes wait as fibers do, under
// deadlines. A stream of the kernel's (with non_blocking(), async_wait() and cancel(),
// such as a socket) is tried first, and waited for only if it would block; a wait
// transfers nothing. A read after one that took everything waits at once.
//
// Throws boost::system::system_error, or sets an error_code; `stopped` and wrong_place.
// Thread safety: read_some, write_some, close and the setters (not set_idle_list) may be
// called by several fibers at a time, the setters by plain threads too. Reads are served
// one after the other, and so are writes; one read and one write may be in progress
// together if the stream below allows that (sockets, pipes and memory_stream do,
// boost::asio::ssl::stream does not). Constructing, moving and destroying it needs
// exclusive access. Lifetime: when a call has returned, nothing touches its buffer any
// more; it must not be destroyed while a call is in progress. Its io_context outlives it.
// Shutdown: a call that would wait throws `stopped`; one that need not still succeeds.
// Cost: one system call for bytes that are there. Go: net.Conn.
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
        false,
        error,
        [&](auto& s) { return detail::try_write(s, buffers, error); },
        [&](auto& s, auto token) { return s.async_write_some(buffers, token); });
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
    const detail::call_queue::hold mine(sides_->write.calls);
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
  friend struct detail::arrival_access;
  friend struct detail::stream_access;

  using side = detail::stream_side;

  // Writes as much as there is room for, or fails with would_block. Caller: nothing else
  // writes.
  std::size_t write_now(const boost::asio::const_buffer& from, boost::system::error_code& error) {
    const detail::call_queue::hold mine(sides_->write.calls);
    error = write_error();
    if (error) return 0;
    if constexpr (detail::waitable<Stream>) {
      set_up();
      return transferred(
          detail::uninterrupted(error, [&] { return detail::try_write(stream_, from, error); }));
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
        boost::asio::buffer_size(buffers) == 0,
        error,
        [&](auto& s) { return detail::try_read(s, buffers, sides_->read.is_empty, error); },
        [&](auto& s, auto token) { return s.async_read_some(buffers, token); });
  }

  // After this many calls in a row that were served at once, one yields first.
  static constexpr unsigned others_come_first = 64;

  // Makes the stream non-blocking, whichever side comes first. Checked each time, because
  // another socket may have been opened through next_layer(). If it is not open, the call
  // itself reports that.
  void set_up() {
    const std::lock_guard guard(sides_->setup);
    boost::system::error_code error;
    const bool is_new = !stream_.non_blocking();
    if (is_new) stream_.non_blocking(true, error);
    if (error || (!is_new && sides_->has_options)) return;
    sides_->has_options = true;
    if constexpr (detail::may_be_tcp<Stream>) {
      detail::set_up_tcp(stream_.native_handle(), sides_->no_delay);
    }
  }

  // `of_nothing`: a read into no buffer, which never waits.
  template <class Try, class Begin>
  std::size_t transfer(side& s,
                       detail::movable_deadline& until,
                       bool of_nothing,
                       boost::system::error_code& error,
                       Try try_it,
                       Begin begin) {
    const detail::call_queue::hold mine(s.calls);
    ++s.counts.begun;
    std::size_t n = 0;
    if constexpr (detail::waitable<Stream>) {
      if (++s.at_once % others_come_first == 0) this_fiber::yield();
      error = until.error();
      if (error) return 0;
      set_up();
      if (of_nothing) s.is_empty = false;
      n = tried_until_ready(s, until, error, try_it);
    } else {
      error = until.error();
      if (error) return 0;
      wait_begins();
      std::tie(error, n) = begin(
          stream_,
          boost::asio::as_tuple(detail::movable_token{&until, detail::shown_object(stream_)}));
    }
    if (n != 0) ++s.counts.successful;
    return transferred(n);
  }

  template <class Try>
  std::size_t tried_until_ready(side& s,
                                detail::movable_deadline& until,
                                boost::system::error_code& error,
                                Try& try_it) {
    const auto try_once = [&] {
      return detail::uninterrupted(error, [&] { return try_it(stream_); });
    };
    for (;;) {
      if (!std::exchange(s.is_empty, false)) {
        const std::size_t n = try_once();
        if (!would_block(error)) return n;
      }
      s.at_once = 0;
      wait_begins();
      error = wait_until_ready(s, until);
      if (error) break;
    }
    if (sides_->joined == nullptr || error != boost::asio::error::timed_out || until.is_over()) {
      return 0;
    }
    // Ended by the idle list: bytes that have arrived come first, and no other error
    // replaces this one.
    const boost::system::error_code by_list = error;
    const std::size_t last = try_once();
    if (last == 0) error = by_list;
    return last;
  }

  boost::system::error_code wait_until_ready(side& s, detail::movable_deadline& until) {
    const boost::asio::any_io_executor& by = stream_.get_executor();
    if (detail::begins_wait(s.ready, by)) {
      begin_wait(stream_, &s == &sides_->read ? Stream::wait_read : Stream::wait_write, s.ready);
    }
    boost::system::error_code error;
    try {
      error = detail::wait(*s.ready.get(), until, by, detail::shown_object(stream_));
    } catch (...) {
      end_wait(stream_, *s.ready.get());
      throw;
    }
    if (error) end_wait(stream_, *s.ready.get());
    return error;
  }

  // Ends Asio's wait, if it is outstanding and its fiber goes on without it, so that an
  // operation on the stream below finds none before it. A wait of the other direction
  // ends as well, as a false alarm.
  [[gnu::noinline]] static void end_wait(Stream& stream, detail::readiness& ready) {
    if (!detail::is_outstanding(ready)) return;  // perhaps the io_context has gone: RD2
    boost::system::error_code ignored;
    stream.cancel(ignored);
  }

  // Not inlined, because Asio may take the address of a thread-local here, and the fiber
  // may be on another thread afterwards.
  template <class Direction>
  [[gnu::noinline]] static void begin_wait(Stream& stream,
                                           Direction direction,
                                           const detail::readiness_ref& ready) {
    try {
      stream.async_wait(direction, detail::ready_handler(ready));
    } catch (...) {
      detail::has_not_begun(*ready.get());
      throw;
    }
  }

  void wait_begins() noexcept {
    if (sides_->joined != nullptr) sides_->joined->begin_wait(sides_->idle);
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

namespace detail {

// Tells an arrival when a stream that no fiber reads may be read. A tls_stream may also
// have bytes of its own.
struct arrival_access {
  // The arrival may be a false alarm.
  template <class Stream>
  static void begin(deadline_stream<Stream>& s, arrival& to) {
    readiness_ref& ready = s.sides_->read.ready;
    if (begins_arrival(ready, s.stream_.get_executor(), to)) {
      s.begin_wait(s.stream_, Stream::wait_read, ready);
    }
  }

  template <class Stream>
  static void begin(Stream& s, arrival& to) {
    if (s.core_.has_input()) {
      to.arrived();
    } else {
      begin(s.core_.below(), to);
    }
  }

  template <class Stream>
  static void end(deadline_stream<Stream>& s) noexcept {
    if (is_moved_out(s)) return;
    const readiness_ref& ready = s.sides_->read.ready;
    s.sides_->read.is_empty = false;
    ends_arrival(ready);
    if (ready) s.end_wait(s.stream_, *ready.get());
  }

  template <class Stream>
  static void end(Stream& s) noexcept {
    end(s.core_.below());
  }

  // Whether a read would not wait.
  template <class Stream>
  static bool is_readable(deadline_stream<Stream>& s) {
    if constexpr (requires { s.stream_.is_readable(); }) {
      return s.stream_.is_readable();
    } else {
      return detail::is_readable(s.stream_.native_handle());
    }
  }

  template <class Stream>
  static bool is_readable(Stream& s) {
    return s.core_.has_input() || is_readable(s.core_.below());
  }

  // How many reads have begun, and how many of them have brought bytes.
  template <class Stream>
  static call_counts reads(const deadline_stream<Stream>& s) noexcept {
    return is_moved_out(s) ? call_counts() : s.sides_->read.counts;
  }

  template <class Stream>
  static call_counts reads(const Stream& s) noexcept {
    return is_moved_out(s) ? call_counts() : s.core_.reads();
  }

  template <class Stream>
  static bool is_moved_out(const deadline_stream<Stream>& s) noexcept {
    return s.sides_ == nullptr;
  }

  template <class Stream>
  static bool is_moved_out(const Stream& s) noexcept {
    return is_moved_out(s.core_.below());
  }
};

}  // namespace detail

}  // namespace VIGIL_IO
