// The two directions of a deadline_stream, and the options of the stream below.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/movable_deadline.hpp>
#include <vigil/io/detail/readiness.hpp>
#include <vigil/io/idle_list.hpp>
#include <vigil/sync.hpp>

#include <array>
#include <cstddef>
#include <mutex>
#include <type_traits>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

namespace boost::asio::ip {
class tcp;
}

namespace boost::asio::generic {
class stream_protocol;
}

namespace VIGIL_IO_DETAIL {

// The calls of one direction of a stream, one after the other.
class call_queue {
 public:
  class hold;
  class try_hold;

  call_queue() = default;
  call_queue(const call_queue&) = delete;
  call_queue& operator=(const call_queue&) = delete;

  // For uninterruptible waiters such as close(): the side between two calls, even if more
  // wait.
  mutex& between_calls() noexcept { return one_; }

 private:
  // Gives back the permit that it has acquired.
  struct place {
    explicit place(semaphore& s) : queue(s) { queue.acquire(); }

    place(const place&) = delete;
    place& operator=(const place&) = delete;

    ~place() { queue.release(); }

    semaphore& queue;
  };

  semaphore queue_{1};  // of the calls; a stop ends the wait in it
  mutex one_;           // held by the first call, or by an uninterruptible waiter
};

// One call has the side while this lives. The constructor throws `stopped` if it would
// have to wait; nothing has begun then.
class call_queue::hold {
 public:
  explicit hold(call_queue& q) : place_(q.queue_), one_(q.one_) {}

 private:
  place place_;
  std::lock_guard<mutex> one_;
};

// The same, if it can be had without a wait.
class call_queue::try_hold {
 public:
  explicit try_hold(call_queue& q)
      : of_(q), has_place_(q.queue_.try_acquire()), has_one_(has_place_ && q.one_.try_lock()) {}

  try_hold(const try_hold&) = delete;
  try_hold& operator=(const try_hold&) = delete;

  ~try_hold() {
    if (has_one_) of_.one_.unlock();
    if (has_place_) of_.queue_.release();
  }

  explicit operator bool() const noexcept { return has_one_; }

 private:
  call_queue& of_;
  const bool has_place_;
  const bool has_one_;
};

struct call_counts {
  unsigned begun = 0;
  unsigned successful = 0;
};

struct stream_side {
  explicit stream_side(time_of name) : deadline(name) {}

  call_queue calls;
  movable_deadline deadline;
  readiness_ref ready;    // guarded by calls; empty until a call waits
  unsigned at_once = 0;   // in a row; guarded by calls
  call_counts counts;     // guarded by calls
  bool is_empty = false;  // guarded by calls: the last read left nothing
};

struct stream_sides {
  stream_side read{time_of::read};
  stream_side write{time_of::write};
  std::mutex setup;          // nothing waits under it; so a select may take it anywhere
  bool no_delay = true;      // guarded by setup
  bool has_options = false;  // guarded by setup; false after a change of them
  idle_list* joined = nullptr;
  idle_entry idle{read.deadline, write.deadline};  // is destroyed first
};

// A stream of the kernel's: its calls can be tried, and what they lack waited for.
template <class Stream>
concept waitable = requires(Stream& s, boost::system::error_code e, ready_handler h) {
  s.non_blocking(true, e);
  static_cast<bool>(s.non_blocking());
  s.async_wait(Stream::wait_read, std::move(h));
  s.cancel(e);
};

// A stream whose calls can be told not to wait, one by one (MSG_DONTWAIT). The flag
// O_NONBLOCK belongs to the open file, which other processes may have as well, and clear.
template <class Stream>
concept takes_flags = requires(Stream& s,
                               boost::asio::mutable_buffer in,
                               boost::asio::const_buffer out,
                               boost::system::error_code e) {
  s.receive(in, MSG_DONTWAIT, e);
  s.send(out, MSG_DONTWAIT, e);
};

template <class Stream, class Protocol>
concept socket_of = std::is_same_v<typename Stream::protocol_type, Protocol> &&
                    requires(Stream& s) { ::recv(s.native_handle(), nullptr, 0, 0); };

template <class Stream>
concept is_tcp = socket_of<Stream, boost::asio::ip::tcp>;

template <class Stream>
concept may_be_tcp = is_tcp<Stream> || socket_of<Stream, boost::asio::generic::stream_protocol>;

// Sets TCP_NODELAY, and has the kernel say with each read how many bytes are left. Either
// may fail, because a generic socket need not be a TCP one.
VIGIL_API void set_up_tcp(int socket, bool no_delay) noexcept;

// Reads from a TCP socket without waiting. `is_empty`: nothing is left, as the kernel
// says, or because the buffers have room left. Not for other sockets: a Unix one would
// put descriptors, which its peer may send along, where the kernel says it.
VIGIL_API std::size_t receive(
    int socket, iovec* to, std::size_t buffers, bool& is_empty, boost::system::error_code& error);

// Whether a read of this descriptor, or a write, would not wait.
VIGIL_API bool is_readable(int descriptor) noexcept;
VIGIL_API bool is_writable(int descriptor) noexcept;

// Repeats a call that a signal has interrupted. Not inlined, because the fiber that waits
// between two calls may be on another thread afterwards, which has another errno.
template <class F>
[[gnu::noinline]] std::size_t uninterrupted(const boost::system::error_code& error, F call) {
  for (;;) {
    const std::size_t n = call();
    if (error != boost::asio::error::interrupted) return n;
  }
}

template <class Buffers>
std::size_t receive(int socket,
                    const Buffers& buffers,
                    bool& is_empty,
                    boost::system::error_code& error) {
  constexpr std::size_t most = 16;
  std::array<iovec, most> to;
  std::size_t n = 0;
  for (auto b = boost::asio::buffer_sequence_begin(buffers);
       b != boost::asio::buffer_sequence_end(buffers) && n < most;
       ++b) {
    const boost::asio::mutable_buffer part(*b);
    if (part.size() != 0) to[n++] = {part.data(), part.size()};
  }
  return receive(socket, to.data(), n, is_empty, error);
}

// Transfers what can be transferred now, or fails with would_block. `is_empty`: the read
// has left nothing.
template <class Stream, class Buffers>
std::size_t try_read(Stream& s,
                     const Buffers& buffers,
                     bool& is_empty,
                     boost::system::error_code& error) {
  if constexpr (is_tcp<Stream>) {
    return receive(s.native_handle(), buffers, is_empty, error);
  } else {
    std::size_t n = 0;
    if constexpr (takes_flags<Stream>) {
      n = s.receive(buffers, MSG_DONTWAIT, error);
    } else {
      n = s.read_some(buffers, error);
    }
    is_empty = !error && n < boost::asio::buffer_size(buffers);
    return n;
  }
}

template <class Stream, class Buffers>
std::size_t try_write(Stream& s, const Buffers& buffers, boost::system::error_code& error) {
  if constexpr (takes_flags<Stream>) {
    return s.send(buffers, MSG_DONTWAIT, error);
  } else {
    return s.write_some(buffers, error);
  }
}

}  // namespace VIGIL_IO_DETAIL
