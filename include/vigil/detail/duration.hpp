// Durations without <chrono>. Any type with rep, period and count() is accepted, so
// headers that only pass a duration on stay light.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/mistakes.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace VIGIL_DETAIL {

template <class D>
concept duration_like = requires(const D& d) {
  typename D::rep;
  D::period::num;
  D::period::den;
  d.count();
};

// A member's parameter: a duration, or a number, which to_nanos() refuses.
template <class D>
concept duration_argument = duration_like<D> || std::is_arithmetic_v<D>;

[[noreturn]] VIGIL_API void throw_not_a_duration();  // throws std::invalid_argument, for NaN

// Converts to nanoseconds, rounding up (a wait is never shorter than requested) and
// saturating at both ends of the range of std::int64_t.
template <duration_like D>
constexpr std::int64_t to_nanos(const D& d) {
  constexpr auto top = std::numeric_limits<std::int64_t>::max();
  constexpr auto bottom = std::numeric_limits<std::int64_t>::min();
  using rep = typename D::rep;
  if constexpr (std::is_floating_point_v<rep>) {
    const auto exact = static_cast<long double>(d.count()) * 1'000'000'000.0L *
                       static_cast<long double>(D::period::num) /
                       static_cast<long double>(D::period::den);
    if (exact != exact) throw_not_a_duration();
    if (exact >= static_cast<long double>(top)) return top;
    if (exact <= static_cast<long double>(bottom)) return bottom;
    const auto whole = static_cast<std::int64_t>(exact);
    return static_cast<long double>(whole) < exact ? whole + 1 : whole;
  } else if constexpr (D::period::num == 1 && D::period::den == 1'000'000'000 &&
                       sizeof(rep) <= sizeof(std::int64_t) && std::is_signed_v<rep>) {
    return d.count();
  } else {
    // num * 10^9 / den in lowest terms keeps the product within 128 bits for
    // every period of the standard library.
    __extension__ using wide = __int128;
    const auto count = static_cast<wide>(d.count());
    constexpr auto num = static_cast<wide>(D::period::num) * 1'000'000'000;
    constexpr auto den = static_cast<wide>(D::period::den);
    wide product = 0;
    if (__builtin_mul_overflow(count, num, &product)) return count > 0 ? top : bottom;
    wide whole = product / den;
    if (product % den > 0) ++whole;
    if (whole >= top) return top;
    if (whole <= bottom) return bottom;
    return static_cast<std::int64_t>(whole);
  }
}

template <class N>
  requires std::is_arithmetic_v<N>
constexpr std::int64_t to_nanos(N) {
  static_assert(!sizeof(N*), VIGIL_WANTS_DURATION);
  return 0;
}

}  // namespace VIGIL_DETAIL
