// Channels hand values from one fiber or thread to another.
//
//   auto lines = vigil::make_channel<std::string>();
//   vigil::go([lines] { lines.send("hello"); lines.close(); });
//   for (std::string line : lines) std::puts(line.c_str());
//
// An unbuffered channel hands each value from a sender to a receiver that meet; a
// buffered one keeps up to `capacity` values in between. Values arrive in the order in
// which they were sent, and waiters are served first come, first served.
//
// A wait ends when the other side comes, when the channel is closed, at the deadline of
// the `_for` and `_until` forms, when the given context is done, or when the fiber is
// stopped: then it throws `stopped`. A value is never lost: a send takes it by reference
// and moves from it only when it commits. (A value of another type is converted first,
// and the converted copy is lost if the send fails.)
#pragma once

#include <vigil/clock.hpp>
#include <vigil/detail/channel_core.hpp>
#include <vigil/detail/channel_parts.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/error.hpp>

#include <concepts>
#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

template <class T>
class channel;

// send_result: the result of try_send, send_for and send_until; true if the value was
// sent. Throws nothing. Thread safety: a plain value. Cost: a byte.
class [[nodiscard]] send_result {
 public:
  constexpr send_result(channel_status status) noexcept  // NOLINT(google-explicit-constructor)
      : status_(status) {}

  constexpr explicit operator bool() const noexcept { return status_ == channel_status::ok; }

  constexpr channel_status status() const noexcept { return status_; }

  constexpr bool is_closed() const noexcept { return status_ == channel_status::closed; }

  constexpr bool is_timeout() const noexcept { return status_ == channel_status::timeout; }

 private:
  channel_status status_;
};

// recv_result<T>: the result of try_recv, recv_for and recv_until: a value, or the reason
// why there is none. Throws nothing but value()'s std::bad_optional_access. Thread
// safety: that of std::optional<T>. Lifetime: it owns the value, and may outlive the
// channel. Shutdown: it belongs to no run. Cost: that of std::optional<T>, and a byte.
// Go: v, ok := <-c.
template <class T>
class [[nodiscard]] recv_result {
 public:
  recv_result(std::optional<T>&& value, channel_status status) noexcept
      : value_(std::move(value)), status_(status) {}

  explicit operator bool() const noexcept { return value_.has_value(); }

  channel_status status() const noexcept { return status_; }

  bool is_closed() const noexcept { return status_ == channel_status::closed; }

  bool is_timeout() const noexcept { return status_ == channel_status::timeout; }

  // Undefined without a value, as for std::optional.
  T& operator*() & noexcept { return *value_; }

  T&& operator*() && noexcept { return *std::move(value_); }

  const T& operator*() const& noexcept { return *value_; }

  T* operator->() noexcept { return &*value_; }

  const T* operator->() const noexcept { return &*value_; }

  // Throws std::bad_optional_access without a value.
  T& value() & { return value_.value(); }

  const T& value() const& { return value_.value(); }

  T&& value() && { return std::move(value_).value(); }

 private:
  std::optional<T> value_;
  channel_status status_;
};

template <>
class [[nodiscard]] recv_result<void> : public send_result {
 public:
  using send_result::send_result;
};

namespace detail {

// The two halves of a channel's interface; channel<T> has both.
template <class T, class Base = channel_base<T>>
class sending : public Base {
 public:
  using Base::Base;

  // Waits until the value is received, or has room in the buffer, and only then moves
  // from it. On a nil channel it waits for ever. Throws channel_closed, with the value
  // untouched, if the channel is closed, even during the wait.
  void send(T&& value) const { send_within(value, no_limit); }

  // Makes a copy first; if that throws, nothing is sent.
  void send(const T& value) const
    requires std::is_copy_constructible_v<T>
  {
    send(T(value));
  }

  // The same; throws `cancelled`, with the value untouched, when ctx is done. A send that
  // need not wait still succeeds.
  void send(T&& value, const context& ctx) const { send_within(value, detail::cancelled_by(ctx)); }

  void send(const T& value, const context& ctx) const
    requires std::is_copy_constructible_v<T>
  {
    send(T(value), ctx);
  }

  // Sends if that needs no waiting. A closed channel is a result, not an exception, here
  // and in the forms with a deadline.
  send_result try_send(T&& value) const {
    return detail::try_send(this->core(), std::addressof(value));
  }

  send_result try_send(const T& value) const
    requires std::is_copy_constructible_v<T>
  {
    return try_send(T(value));
  }

  // Gives up after the timeout, never earlier; at once if the timeout is zero or
  // negative.
  template <duration_argument D>
  send_result send_for(T&& value, const D& timeout) const {
    return send_value(value, detail::within(timeout));
  }

  template <duration_argument D>
  send_result send_for(const T& value, const D& timeout) const
    requires std::is_copy_constructible_v<T>
  {
    return send_for(T(value), timeout);
  }

  template <time_point_like Time>
  send_result send_until(T&& value, const Time& t) const {
    return send_value(value, detail::until(t));
  }

  template <time_point_like Time>
  send_result send_until(const T& value, const Time& t) const
    requires std::is_copy_constructible_v<T>
  {
    return send_until(T(value), t);
  }

  // An lvalue of a T that cannot be copied: the compiler says what to write.
  template <std::same_as<T> U, class... Limit, class write = send_of_std_move>
    requires(!std::is_copy_constructible_v<U>)
  void send(const U& value, const Limit&... limit) const VIGIL_REFUSED("write send(std::move(v))");

  template <std::same_as<T> U, class write = try_send_of_std_move>
    requires(!std::is_copy_constructible_v<U>)
  void try_send(const U& value) const VIGIL_REFUSED("write try_send(std::move(v))");

  template <std::same_as<T> U, class Time, class write = send_for_of_std_move>
    requires(!std::is_copy_constructible_v<U>)
  void send_for(const U& value, const Time& timeout) const
      VIGIL_REFUSED("write send_for(std::move(v), timeout)");

  template <std::same_as<T> U, class Time, class write = send_until_of_std_move>
    requires(!std::is_copy_constructible_v<U>)
  void send_until(const U& value, const Time& t) const
      VIGIL_REFUSED("write send_until(std::move(v), deadline)");

  // Says that no more will be sent: receivers get the buffered values, then nullopt;
  // waiting senders throw channel_closed and keep their values. Throws channel_closed if
  // the channel is closed already, and std::logic_error for a nil channel.
  void close() const { detail::close(this->core()); }

 private:
  void send_within(T& value, const wait_limit& limit) const {
    if (send_value(value, limit) == channel_status::closed) throw_send_on_closed();
  }

  channel_status send_value(T& value, const wait_limit& limit) const {
    return detail::send(this->core(), std::addressof(value), limit);
  }
};

template <class Base>
class sending<void, Base> : public Base {
 public:
  using Base::Base;

  void send() const { send_within(no_limit); }

  void send(const context& ctx) const { send_within(detail::cancelled_by(ctx)); }

  send_result try_send() const { return detail::try_send(this->core(), nullptr); }

  template <duration_argument D>
  send_result send_for(const D& timeout) const {
    return send_signal(detail::within(timeout));
  }

  template <time_point_like Time>
  send_result send_until(const Time& t) const {
    return send_signal(detail::until(t));
  }

  void close() const { detail::close(this->core()); }

 private:
  void send_within(const wait_limit& limit) const {
    if (send_signal(limit) == channel_status::closed) throw_send_on_closed();
  }

  channel_status send_signal(const wait_limit& limit) const {
    return detail::send(this->core(), nullptr, limit);
  }
};

template <class T, class Base = channel_base<T>>
class receiving : public Base {
 public:
  using Base::Base;

  // Waits for a value. Returns nullopt (for channel<void>: false) once the channel is
  // closed and drained. On a nil channel it waits for ever.
  received<T> recv() const { return recv_value(no_limit); }

  // The same; throws `cancelled` when ctx is done.
  received<T> recv(const context& ctx) const { return recv_value(detail::cancelled_by(ctx)); }

  // Takes a value if one is ready.
  recv_result<T> try_recv() const {
    value_room<T> room;
    return result_of(room, detail::try_recv(this->core(), room.room()));
  }

  // Gives up after the timeout, never earlier; at once if the timeout is zero or
  // negative. A value that is ready at that moment is still received.
  template <duration_argument D>
  recv_result<T> recv_for(const D& timeout) const {
    return recv_within(detail::within(timeout));
  }

  template <time_point_like Time>
  recv_result<T> recv_until(const Time& t) const {
    return recv_within(detail::until(t));
  }

  // For range-for, which ends when the channel is closed and drained.
  recv_iterator<T> begin() const
    requires(!std::is_void_v<T>)
  {
    return recv_iterator<T>(this->handle());
  }

  std::default_sentinel_t end() const noexcept
    requires(!std::is_void_v<T>)
  {
    return {};
  }

 private:
  received<T> recv_value(const wait_limit& limit) const {
    value_room<T> room;
    return room.take(detail::recv(this->core(), room.room(), limit));
  }

  recv_result<T> recv_within(const wait_limit& limit) const {
    value_room<T> room;
    return result_of(room, detail::recv(this->core(), room.room(), limit));
  }

  static recv_result<T> result_of(value_room<T>& room, channel_status status) {
    if constexpr (std::is_void_v<T>) {
      return status;
    } else {
      return {room.take(status), status};
    }
  }
};

}  // namespace detail

// receiver<T>: the receiving half of a channel, for consumers. It cannot send or close.
// Throws from waits `stopped`, wrong_place, `cancelled` with a context, std::bad_alloc
// with a time. Thread safety: that of channel. Lifetime: that of channel; it counts as a
// handle. Shutdown: that of channel. Cost: that of channel.
template <class T>
class receiver : public detail::receiving<T> {
 public:
  using detail::receiving<T>::receiving;
  receiver() noexcept = default;

  receiver(const channel<T>& c) noexcept  // NOLINT(google-explicit-constructor): as in Go
      : detail::receiving<T>(c.handle()) {}
};

// sender<T>: the sending half of a channel. It may close the channel. Throws
// channel_closed; from waits what receiver throws; std::logic_error from close() of a nil
// channel; what a copy of T throws. Thread safety: that of channel. Lifetime: that of
// channel; it counts as a handle. Shutdown: that of channel. Cost: that of channel.
template <class T>
class sender : public detail::sending<T> {
 public:
  sender() noexcept = default;

  sender(const channel<T>& c) noexcept  // NOLINT(google-explicit-constructor): as in Go
      : detail::sending<T>(c.handle()) {}
};

// channel<T>: a queue between fibers, threads and tasks. The object is a cheap handle;
// copies name the same channel. A default-constructed handle is Go's nil channel, which
// is never ready: sends and receives wait for ever, a select never takes it, and close()
// throws.
//
// Moving and destroying a value is user code that runs under the channel's lock: it must
// not use the library, and it must not throw.
//
// Throws channel_closed from send() and close() once the channel is closed;
// std::logic_error from close() of a nil channel; `stopped`, `cancelled` and wrong_place
// from waits; std::bad_alloc from those with a time; what a copy of T throws.
//
// Thread safety: everything may be called from fibers of any runtime and from plain
// threads, in any mix, at any time. A send happens before the receive of its value; a
// close before the receive that sees it; the receive of a value from an unbuffered
// channel before the send returns.
//
// Lifetime: the channel, with the values in it, lives as long as a handle does, and
// belongs to no runtime. One that holds a handle of itself is never freed. Shutdown: a
// wait throws `stopped`; an operation that need not wait succeeds even then, so a stopped
// fiber can drain a channel. Cost: one lock for each operation, which allocates nothing.
// Behaviour: Go's channels.
template <class T>
class channel : public detail::sending<T, detail::receiving<T>> {
 public:
  using detail::sending<T, detail::receiving<T>>::sending;
  channel() noexcept = default;
};

// scoped_close: closes a channel at the end of the scope, however that is left, unless it
// is closed already. It can be moved, even into a fiber's function, and then closes the
// channel at the end of its new scope. Throws nothing from its destructor. Thread safety:
// one fiber or thread at a time. Lifetime: it keeps the channel. Shutdown: an unwound
// fiber closes the channel. Cost: that of close(). Go: defer close(c).
//
//   vigil::go([out] {
//     const vigil::scoped_close closes(out);
//     ...
//   });
class [[nodiscard]] scoped_close {
 public:
  // Both throw std::logic_error for a nil channel.
  template <class T>
  explicit scoped_close(const channel<T>& c) : scoped_close(c.handle()) {}

  template <class T>
  explicit scoped_close(const sender<T>& c) : scoped_close(c.handle()) {}

  scoped_close(scoped_close&& other) noexcept = default;
  scoped_close& operator=(scoped_close&&) = delete;

  ~scoped_close() {
    if (handle_.get() != nullptr) detail::close_at_end(handle_.get());
  }

 private:
  explicit scoped_close(const detail::channel_handle& c) : handle_(c) {
    detail::check_closable(c.get());
  }

  detail::channel_handle handle_;
};

// Makes a channel with room for `capacity` values; 0 makes it unbuffered. Throws
// std::length_error if no machine could hold that many, and std::bad_alloc if this one
// cannot. Thread safety: any thread, with or without a runtime. Lifetime: the channel
// goes with its last handle. Shutdown: it belongs to no run. Cost: one allocation, and
// one for the whole buffer. Go: make(chan T, capacity).
template <class T>
channel<T> make_channel(std::size_t capacity = 0, const site& from = site::current()) {
  static_cast<void>(sizeof(detail::value_room<T>));  // checks its assertions
  return channel<T>(
      detail::channel_handle(detail::make_channel(detail::ops_of<T>, capacity, from)));
}

}  // namespace VIGIL_PUBLIC
