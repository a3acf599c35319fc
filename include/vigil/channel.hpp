// Channels: values handed from one fiber or thread to another.
//
//   auto lines = vigil::make_channel<std::string>();
//   vigil::go([lines] { lines.send("hello"); lines.close(); });
//   for (std::string line : lines) std::puts(line.c_str());
//
// An unbuffered channel hands each value from a sender to a receiver that meet;
// a buffered one keeps up to `capacity` values in between. Values arrive in the
// order in which they were sent, and those who wait are served first come,
// first served. Behaviour: Go's channels.
//
// Thread safety: everything may be called from fibers of any runtime and from
// plain threads, in any mix, at any time. A send happens before the receive of
// its value; a close before the receive that sees it; the receive of a value
// from an unbuffered channel before the send returns.
//
// A wait ends by the other side, by a close, by the deadline of the `_for` and
// `_until` forms, by the end of the context that was given, or by a stop of the
// fiber: `stopped` is thrown, as by every wait, but an operation that need not
// wait is still done, so that a channel can be drained. A value is never lost:
// a send takes it by reference and moves from it only on commit; a send that
// ends otherwise leaves the value in the caller's hand. (A value of another
// type is converted first, and that copy is lost: convert it yourself.)
//
// Moving or destroying a value is user code that runs under the channel's lock:
// it must not use the library, and it cannot throw.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/detail/channel_core.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/error.hpp>

#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

namespace vigil {
inline namespace VIGIL_ABI {

template <class T>
class channel;

// How a try_send or a send_for ended: true if the value was sent.
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

// What a try_recv or a recv_for brought: a value, or why there is none.
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

// Room for one value that may be constructed there.
template <class T>
class value_room {
 public:
  static_assert(std::is_object_v<T> && !std::is_array_v<T> && !std::is_const_v<T>,
                "channel<T>: T must be an object type that can be moved; send a pointer or a "
                "std::reference_wrapper for references");
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T>,
                "channel<T>: moving a T must not throw, or a value could be lost on its way; mark "
                "its move constructor noexcept, or send a std::unique_ptr<T>");

  // NOLINTNEXTLINE(modernize-use-equals-default): T may have no constructor
  value_room() noexcept {}
  // Nothing is in either between an operation and take().
  value_room(value_room&&) noexcept : value_room() {}
  value_room& operator=(value_room&&) = delete;
  // NOLINTNEXTLINE(modernize-use-equals-default): T may have a destructor
  ~value_room() {}

  void* room() noexcept { return std::addressof(value_); }

  // What an operation that ended so has constructed here; once for each.
  std::optional<T> take(channel_status status) noexcept {
    if (status != channel_status::ok) return std::nullopt;
    std::optional<T> got(std::move(value_));
    value_.~T();
    return got;
  }

 private:
  union {
    T value_;
  };
};

// A counted reference to a channel's core: what all the handles are made of.
class channel_handle {
 public:
  channel_handle() noexcept = default;
  explicit channel_handle(channel_core* owned) noexcept : core_(owned) {}
  channel_handle(const channel_handle& other) noexcept : core_(other.core_) {
    if (core_ != nullptr) add_handle(core_);
  }
  channel_handle(channel_handle&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  channel_handle& operator=(channel_handle other) noexcept {
    std::swap(core_, other.core_);
    return *this;
  }
  ~channel_handle() {
    if (core_ != nullptr) drop_handle(core_);
  }

  channel_core* core() const noexcept { return core_; }

 private:
  channel_core* core_ = nullptr;
};

// Walks over what comes until the channel is closed and drained.
template <class T>
class recv_iterator {
 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using pointer = T*;
  using iterator_category = std::input_iterator_tag;

  recv_iterator() noexcept = default;
  // It keeps the channel, whatever becomes of the handle that the loop began with.
  explicit recv_iterator(channel_handle from) : from_(std::move(from)) { ++*this; }

  T& operator*() const noexcept { return *value_; }
  T* operator->() const noexcept { return &*value_; }

  recv_iterator& operator++() {
    value_.reset();
    value_room<T> room;
    if (std::optional<T> got = room.take(recv(from_.core(), room.room(), no_limit))) {
      value_.emplace(*std::move(got));
    }
    return *this;
  }
  void operator++(int) { ++*this; }

  friend bool operator==(const recv_iterator& it, std::default_sentinel_t) noexcept {
    return !it.value_.has_value();
  }

 private:
  channel_handle from_;
  mutable std::optional<T> value_;
};

// The halves of a channel's interface; channel<T> has both.
template <class Self, class T>
class sending {
 public:
  // Waits until the value is received, or has room in the buffer. The value is
  // moved from only then. Throws channel_closed, with the value untouched, if
  // the channel is closed or is closed meanwhile. On a nil channel it waits
  // for ever.
  void send(T&& value) const { send_within(value, no_limit); }
  // The copy is made first: if that throws, nothing was sent.
  void send(const T& value) const
    requires std::is_copy_constructible_v<T>
  {
    send(T(value));
  }

  // The same, at most until ctx is done: then throws `cancelled`, with the value
  // untouched. What can be done at once is done all the same.
  void send(T&& value, const context& ctx) const { send_within(value, detail::under(ctx)); }
  void send(const T& value, const context& ctx) const
    requires std::is_copy_constructible_v<T>
  {
    send(T(value), ctx);
  }

  // Sends if that needs no waiting. A closed channel is a result, not an
  // exception, and so it is with a deadline.
  send_result try_send(T&& value) const { return detail::try_send(core(), std::addressof(value)); }
  send_result try_send(const T& value) const
    requires std::is_copy_constructible_v<T>
  {
    return try_send(T(value));
  }

  // Gives up after the timeout, never earlier; zero or negative: at once.
  template <duration_like D>
  send_result send_for(T&& value, const D& timeout) const {
    return detail::send(core(), std::addressof(value), detail::within(timeout));
  }
  template <duration_like D>
  send_result send_for(const T& value, const D& timeout) const
    requires std::is_copy_constructible_v<T>
  {
    return send_for(T(value), timeout);
  }
  template <detail::time_point_like Time>
  send_result send_until(T&& value, const Time& t) const {
    return detail::send(core(), std::addressof(value), detail::until(t));
  }
  template <detail::time_point_like Time>
  send_result send_until(const T& value, const Time& t) const
    requires std::is_copy_constructible_v<T>
  {
    return send_until(T(value), t);
  }

 private:
  void send_within(T& value, const wait_limit& limit) const {
    if (detail::send(core(), std::addressof(value), limit) == channel_status::closed) {
      throw_send_on_closed();
    }
  }
  channel_core* core() const noexcept { return static_cast<const Self*>(this)->core(); }
};

template <class Self>
class sending<Self, void> {
 public:
  void send() const { send_within(no_limit); }
  void send(const context& ctx) const { send_within(detail::under(ctx)); }
  send_result try_send() const { return detail::try_send(core(), nullptr); }
  template <duration_like D>
  send_result send_for(const D& timeout) const {
    return detail::send(core(), nullptr, detail::within(timeout));
  }
  template <detail::time_point_like Time>
  send_result send_until(const Time& t) const {
    return detail::send(core(), nullptr, detail::until(t));
  }

 private:
  void send_within(const wait_limit& limit) const {
    if (detail::send(core(), nullptr, limit) == channel_status::closed) throw_send_on_closed();
  }
  channel_core* core() const noexcept { return static_cast<const Self*>(this)->core(); }
};

template <class Self, class T>
class receiving {
 public:
  using value_type = T;

  // Waits for a value; nullopt: the channel is closed, and drained. On a nil
  // channel it waits for ever.
  std::optional<T> recv() const { return recv_value(no_limit); }
  // The same, at most until ctx is done: then throws `cancelled`.
  std::optional<T> recv(const context& ctx) const { return recv_value(detail::under(ctx)); }

  // A value if there is one at this moment.
  recv_result<T> try_recv() const {
    value_room<T> room;
    const channel_status status = detail::try_recv(core(), room.room());
    return {room.take(status), status};
  }

  // Gives up after the timeout, never earlier; zero or negative: at once. What
  // is there at that moment is received, not refused.
  template <duration_like D>
  recv_result<T> recv_for(const D& timeout) const {
    return recv_result_of(detail::within(timeout));
  }
  template <detail::time_point_like Time>
  recv_result<T> recv_until(const Time& t) const {
    return recv_result_of(detail::until(t));
  }

  // For range-for: until the channel is closed and drained.
  recv_iterator<T> begin() const {
    return recv_iterator<T>(static_cast<const Self*>(this)->handle());
  }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  std::optional<T> recv_value(const wait_limit& limit) const {
    value_room<T> room;
    return room.take(detail::recv(core(), room.room(), limit));
  }
  recv_result<T> recv_result_of(const wait_limit& limit) const {
    value_room<T> room;
    const channel_status status = detail::recv(core(), room.room(), limit);
    return {room.take(status), status};
  }
  channel_core* core() const noexcept { return static_cast<const Self*>(this)->core(); }
};

template <class Self>
class receiving<Self, void> {
 public:
  using value_type = void;

  // True when something was received, false when closed and drained.
  bool recv() const { return detail::recv(core(), nullptr, no_limit) == channel_status::ok; }
  bool recv(const context& ctx) const {
    return detail::recv(core(), nullptr, detail::under(ctx)) == channel_status::ok;
  }
  recv_result<void> try_recv() const { return detail::try_recv(core(), nullptr); }
  template <duration_like D>
  recv_result<void> recv_for(const D& timeout) const {
    return detail::recv(core(), nullptr, detail::within(timeout));
  }
  template <detail::time_point_like Time>
  recv_result<void> recv_until(const Time& t) const {
    return detail::recv(core(), nullptr, detail::until(t));
  }

 private:
  channel_core* core() const noexcept { return static_cast<const Self*>(this)->core(); }
};

// What every handle answers.
template <class Self>
class channel_facts {
 public:
  // Whether it names a channel at all; a nil one is never ready.
  explicit operator bool() const noexcept { return core() != nullptr; }

  // Values in the buffer; of a nil channel, and of a timer's, 0.
  std::size_t size() const noexcept { return detail::size(core()); }
  std::size_t capacity() const noexcept { return detail::capacity(core()); }

  // The same channel?
  friend bool operator==(const Self& a, const Self& b) noexcept { return a.core() == b.core(); }

 private:
  channel_core* core() const noexcept { return static_cast<const Self*>(this)->core(); }
};

}  // namespace detail

// The receiving half: what a consumer is given. It cannot send or close.
template <class T>
class receiver : public detail::receiving<receiver<T>, T>,
                 public detail::channel_facts<receiver<T>> {
 public:
  receiver() noexcept = default;
  receiver(const channel<T>& c) noexcept  // NOLINT(google-explicit-constructor): as in Go
      : handle_(c.handle()) {}
  // Made by the library.
  explicit receiver(detail::channel_handle handle) noexcept : handle_(std::move(handle)) {}

  detail::channel_core* core() const noexcept { return handle_.core(); }
  const detail::channel_handle& handle() const& noexcept { return handle_; }
  detail::channel_handle&& handle() && noexcept { return std::move(handle_); }

 private:
  detail::channel_handle handle_;
};

// The sending half. It may close the channel.
template <class T>
class sender : public detail::sending<sender<T>, T>, public detail::channel_facts<sender<T>> {
 public:
  sender() noexcept = default;
  sender(const channel<T>& c) noexcept  // NOLINT(google-explicit-constructor): as in Go
      : handle_(c.handle()) {}

  void close() const { detail::close(core()); }

  detail::channel_core* core() const noexcept { return handle_.core(); }
  const detail::channel_handle& handle() const& noexcept { return handle_; }
  detail::channel_handle&& handle() && noexcept { return std::move(handle_); }

 private:
  detail::channel_handle handle_;
};

// A cheap handle: copies name the same channel, which lives as long as one of
// them does. Default-constructed it is Go's nil channel, never ready: a send or
// a receive waits for ever, in a select it is never chosen, and close() throws.
template <class T>
class channel : public detail::sending<channel<T>, T>,
                public detail::receiving<channel<T>, T>,
                public detail::channel_facts<channel<T>> {
 public:
  channel() noexcept = default;
  explicit channel(detail::channel_handle handle) noexcept : handle_(std::move(handle)) {}

  // No more will be sent: receivers get what is in the buffer, then nullopt;
  // senders that wait throw channel_closed and keep their values. Throws
  // channel_closed if it is closed already, and std::logic_error for a nil
  // channel.
  void close() const { detail::close(core()); }

  detail::channel_core* core() const noexcept { return handle_.core(); }
  const detail::channel_handle& handle() const& noexcept { return handle_; }
  detail::channel_handle&& handle() && noexcept { return std::move(handle_); }

 private:
  detail::channel_handle handle_;
};

// Closes a channel at the end of its scope, however that is left; does nothing if
// the channel is closed already. Go's `defer close(c)`. Moved, also into a fiber's
// function, it closes at the end of where it is then.
//
//   vigil::go([out] {
//     const vigil::scoped_close closes(out);
//     ...
//   });
class [[nodiscard]] scoped_close {
 public:
  // Throw std::logic_error for a nil channel.
  template <class T>
  explicit scoped_close(const channel<T>& c) : scoped_close(c.handle()) {}
  template <class T>
  explicit scoped_close(const sender<T>& c) : scoped_close(c.handle()) {}
  scoped_close(scoped_close&& other) noexcept = default;
  scoped_close& operator=(scoped_close&&) = delete;
  ~scoped_close() {
    if (handle_.core() != nullptr) detail::close_at_end(handle_.core());
  }

 private:
  explicit scoped_close(const detail::channel_handle& c) : handle_(c) {
    detail::check_closable(c.core());
  }

  detail::channel_handle handle_;
};

// A channel with room for `capacity` values; 0: unbuffered. Throws
// std::length_error if no machine could hold that many, std::bad_alloc if this
// one cannot.
template <class T>
channel<T> make_channel(std::size_t capacity = 0) {
  if constexpr (!std::is_void_v<T>) {
    static_cast<void>(sizeof(detail::value_room<T>));  // its assertions
  }
  return channel<T>(detail::channel_handle(detail::make_channel(detail::ops_of<T>, capacity)));
}

}  // namespace VIGIL_ABI
}  // namespace vigil
