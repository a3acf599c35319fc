// ticks: the processor's own counter of time, which costs a third of a look at the clock.
#pragma once

#include "core/base/clock_source.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace VIGIL_DETAIL {

// Whether ticks() runs at one rate, and is the same on all processors. Where it is not,
// it must not be used.
inline bool ticks_are_steady() noexcept {
#if defined(__x86_64__)
  constexpr unsigned power_leaf = 0x8000'0007;
  constexpr unsigned invariant_tsc = 1u << 8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(power_leaf, &a, &b, &c, &d) != 0 && (d & invariant_tsc) != 0;
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

// Not ordered with the memory accesses around it.
inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t t = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(t));
  return t;
#else
  return static_cast<std::uint64_t>(monotonic_now());
#endif
}

// The number of ticks in that time, measured in a millisecond; never stays never.
inline std::uint64_t ticks_in(nanos span) noexcept {
  if (span == never) return ~std::uint64_t{0};
  constexpr nanos measured = 1'000'000;
  const nanos begin = monotonic_now();
  const std::uint64_t first = ticks();
  nanos now = begin;
  while (now - begin < measured)
    now = monotonic_now();
  const auto rate = static_cast<double>(ticks() - first) / static_cast<double>(now - begin);
  const double n = static_cast<double>(span) * rate;
  constexpr double most = 1e18;
  if (n >= most) return ~std::uint64_t{0};
  return n < 1 ? 1 : static_cast<std::uint64_t>(n);
}

}  // namespace VIGIL_DETAIL
