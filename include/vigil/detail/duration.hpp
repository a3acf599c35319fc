// Durations without <chrono>. Any type with rep, period and count() is accepted, so
// headers that only pass a duration on stay light.
#pragma once

#include <vigil/detail/config.hpp>

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

// The compiler's message for a number without a unit.
template <class D>
struct checked_duration {
  static_assert(duration_like<D>,
                "vigil: a length of time has a unit: write 5ms or std::chrono::milliseconds(5), "
                "not 5");
  static constexpr bool is_done = true;
};

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

}  // namespace VIGIL_DETAIL
