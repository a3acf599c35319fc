// The untyped channel that the templates of channel.hpp and select.hpp call.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

// How an operation on a channel ended.
enum class channel_status : std::uint8_t {
  ok,         // the value was sent, or received
  closed,     // for a receiver: closed and drained
  not_ready,  // a try_ form would have had to wait
  timeout,    // the time ran out first
};

namespace detail {

class channel_core;

// The operations of a channel on values of one type. If the functions are null, the bytes
// are copied and nothing is destroyed.
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

// A channel<void> carries only the fact that something was sent.
template <>
inline constexpr element_ops ops_of<void> = {0, 1, nullptr, nullptr};

VIGIL_API channel_core* make_channel(const element_ops& ops,
                                     std::size_t capacity,
                                     const site& from);
VIGIL_API void retain(channel_core* c) noexcept;
VIGIL_API void release(channel_core* c) noexcept;

// Moves from `value` if it returns ok, and leaves it untouched otherwise.
// Waits: throws stopped, wrong_place.
VIGIL_API channel_status send(channel_core* c, void* value, const wait_limit& limit);
VIGIL_API channel_status try_send(channel_core* c, void* value) noexcept;

// Constructs a value in `into`, which is room for one, if it returns ok.
// Waits: throws stopped, wrong_place.
VIGIL_API channel_status recv(channel_core* c, void* into, const wait_limit& limit);
VIGIL_API channel_status try_recv(channel_core* c, void* into) noexcept;

VIGIL_API void close(channel_core* c);
VIGIL_API void check_closable(const channel_core* c);
VIGIL_API void close_at_end(channel_core* c) noexcept;  // unless it is closed
VIGIL_API std::size_t size(const channel_core* c) noexcept;
VIGIL_API std::size_t capacity(const channel_core* c) noexcept;

// Throws: channel_closed.
[[noreturn]] VIGIL_API void throw_send_on_closed();

// The channel that the end of a context closes, with a reference for the caller; nullptr
// for a context that is never done. Throws std::invalid_argument for a nil context.
VIGIL_API channel_core* done_of(const context& ctx);

}  // namespace detail
}  // namespace VIGIL_PUBLIC
