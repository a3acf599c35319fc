// The parts of the handles in channel.hpp.
#pragma once

#include <vigil/detail/channel_core.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/handle.hpp>
#include <vigil/detail/mistakes.hpp>

#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

namespace VIGIL_DETAIL {

// The result of recv().
template <class T>
using received = std::conditional_t<std::is_void_v<T>, bool, std::optional<T>>;

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

  // Neither room has a value between an operation and take().
  value_room(value_room&&) noexcept : value_room() {}

  value_room& operator=(value_room&&) = delete;

  // NOLINTNEXTLINE(modernize-use-equals-default): T may have a destructor
  ~value_room() {}

  void* room() noexcept { return std::addressof(value_); }

  // Takes the value that an operation with this status has constructed here. Once for
  // each operation.
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

template <>
class value_room<void> {
 public:
  void* room() noexcept { return nullptr; }

  bool take(channel_status status) noexcept { return status == channel_status::ok; }
};

// The reference in every handle of a channel.
using channel_handle = handle<channel_core>;

// The part that all handles of a channel of T share.
template <class T>
class channel_base {
 public:
  using value_type = T;

  channel_base() noexcept = default;

  explicit channel_base(channel_handle owned) noexcept : handle_(std::move(owned)) {}

  // False for a nil channel, which is never ready.
  explicit operator bool() const noexcept { return core() != nullptr; }

  // The number of values in the buffer; 0 for a nil channel and for a timer's.
  std::size_t size() const noexcept { return detail::size(core()); }

  std::size_t capacity() const noexcept { return detail::capacity(core()); }

  // Whether both name the same channel.
  friend bool operator==(const channel_base& a, const channel_base& b) noexcept {
    return a.core() == b.core();
  }

  // For the library only.
  channel_core* core() const noexcept { return handle_.get(); }

  const channel_handle& handle() const& noexcept { return handle_; }

  channel_handle&& handle() && noexcept { return std::move(handle_); }

 private:
  channel_handle handle_;
};

// Iterates over the values until the channel is closed and drained.
template <class T>
class recv_iterator {
 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using pointer = T*;
  using iterator_category = std::input_iterator_tag;

  recv_iterator() noexcept = default;

  // Keeps the channel alive, even if the handle that the loop began with goes.
  explicit recv_iterator(channel_handle from) : from_(std::move(from)) { ++*this; }

  T& operator*() const noexcept { return *value_; }

  T* operator->() const noexcept { return &*value_; }

  recv_iterator& operator++() {
    value_.reset();
    value_room<T> room;
    if (std::optional<T> got = room.take(recv(from_.get(), room.room(), no_limit))) {
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

}  // namespace VIGIL_DETAIL
