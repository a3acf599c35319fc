// splitmix64: a small generator whose whole state is one seed, so that a run
// can be replayed from one number. Not for secrets.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

class random {
 public:
  explicit random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept { return mixed(state_ += step); }

  // The number that a generator with this seed draws after n others.
  static std::uint64_t nth(std::uint64_t seed, std::uint64_t n) noexcept {
    return mixed(seed + (n + 1) * step);
  }

  // Draws evenly from 0 … n - 1 (with the bias of one multiplication, below 2^-32 for
  // n < 2^32).
  std::uint32_t below(std::uint32_t n) noexcept {
    return static_cast<std::uint32_t>(((next() >> 32) * n) >> 32);
  }

 private:
  static constexpr std::uint64_t step = 0x9e3779b97f4a7c15;

  static std::uint64_t mixed(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

}  // namespace VIGIL_DETAIL
