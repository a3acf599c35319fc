// The untyped channel that the templates of channel.hpp and select.hpp call.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace vigil::inline VIGIL_ABI {

// How an operation on a channel ended that did not simply succeed or throw.
enum class channel_status : std::uint8_t {
  ok,         // the value was sent, or received
  closed,     // to a receiver: closed and drained
  not_ready,  // try_ forms: it would have had to wait
  timeout,    // it waited, in vain
};

namespace detail {

class channel_core;

// The operations of a channel on values of one type. Where the functions are null,
// the bytes are copied and nothing is destroyed.
struct element_ops {
  std::size_t size;
  std::size_t align;
  void (*move)(void* to, void* from) noexcept;  // constructs at `to`
  void (*destroy)(void* value) noexcept;
};

template <class T>
inline constexpr element_ops ops_of = {
    sizeof(T),
    alignof(T),
    std::is_trivially_copyable_v<T>
        ? nullptr
        : +[](void* to, void* from) noexcept { ::new (to) T(std::move(*static_cast<T*>(from))); },
    std::is_trivially_destructible_v<T>
        ? nullptr
        : +[](void* value) noexcept { static_cast<T*>(value)->~T(); }};

// channel<void>: only that something was sent.
template <>
inline constexpr element_ops ops_of<void> = {0, 1, nullptr, nullptr};

VIGIL_API channel_core* make_channel(const element_ops& ops, std::size_t capacity);
VIGIL_API void add_handle(channel_core* c) noexcept;
VIGIL_API void drop_handle(channel_core* c) noexcept;

// `value` is moved from if the status is ok, and untouched otherwise.
// Waits: throws stopped, wrong_place.
VIGIL_API channel_status send(channel_core* c, void* value, const wait_limit& limit);
VIGIL_API channel_status try_send(channel_core* c, void* value) noexcept;

// `into` is room for a value, constructed there if the status is ok.
// Waits: throws stopped, wrong_place.
VIGIL_API channel_status recv(channel_core* c, void* into, const wait_limit& limit);
VIGIL_API channel_status try_recv(channel_core* c, void* into) noexcept;

VIGIL_API void close(channel_core* c);
VIGIL_API void check_closable(const channel_core* c);
VIGIL_API void close_at_end(channel_core* c) noexcept;  // if it is not closed yet
VIGIL_API std::size_t size(const channel_core* c) noexcept;
VIGIL_API std::size_t capacity(const channel_core* c) noexcept;

// Throws: channel_closed.
[[noreturn]] VIGIL_API void throw_send_on_closed();

// The channel of a context's end, with a handle of its own; nullptr: a context that is
// never done. Throws std::invalid_argument for a nil one.
VIGIL_API channel_core* done_of(const context& ctx);

}  // namespace detail
}  // namespace vigil::inline VIGIL_ABI
