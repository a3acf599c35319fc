// Deadlines without <chrono>, in nanoseconds of vigil::clock. Any type with the members
// of a time_point is accepted, so headers that only pass a time on stay light.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace VIGIL_PUBLIC {

struct clock;  // clock.hpp

namespace detail {

inline constexpr std::int64_t no_deadline = std::numeric_limits<std::int64_t>::max();

VIGIL_API std::int64_t now() noexcept;  // reads vigil::clock

constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? no_deadline : std::numeric_limits<std::int64_t>::min();
}

template <class T>
concept time_point_like = requires(const T& t) {
  typename T::clock;
  { t.time_since_epoch().count() };
  T::max();
};

// A deadline of another clock is converted by its distance from that clock's now.
template <time_point_like T>
std::int64_t to_deadline(const T& t) {
  if constexpr (std::is_same_v<typename T::clock, clock>) {
    return to_nanos(t.time_since_epoch());
  } else {
    if (t == T::max()) return no_deadline;
    const auto from = T::clock::now();
    const std::int64_t target = to_nanos(t.time_since_epoch());
    const std::int64_t base = to_nanos(from.time_since_epoch());
    std::int64_t distance = 0;
    if (__builtin_sub_overflow(target, base, &distance)) {
      return target > base ? no_deadline : std::numeric_limits<std::int64_t>::min();
    }
    return saturating_add(now(), distance);
  }
}

}  // namespace detail
}  // namespace VIGIL_PUBLIC
