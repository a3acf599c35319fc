// The common part of the targets on virtual time: nanoseconds as numbers, and durations
// that are often equal, sometimes zero or less, and rarely without end.
#pragma once

#include "fuzz/input.hpp"

#include <vigil/testing.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

namespace fuzz {

using nanos = std::int64_t;
using std::chrono::nanoseconds;

// Most durations are a multiple: slack is kept in whole microseconds.
inline constexpr nanos unit = 1000;

inline constexpr nanos no_deadline = INT64_MAX;
inline constexpr nanos latest = no_deadline - 1;  // never comes, and is not shown

inline nanos now() {
  return vigil::clock::now().time_since_epoch().count();
}

inline vigil::clock::time_point at(nanos time) {
  return vigil::clock::time_point(nanoseconds(time));
}

inline nanos saturated(nanos time, nanos delay) noexcept {
  nanos sum = 0;
  if (!__builtin_add_overflow(time, delay, &sum)) return sum;
  return delay > 0 ? INT64_MAX : INT64_MIN;
}

inline nanos some_delay(input& in) noexcept {
  const std::uint8_t first = in.byte();
  if (first == 0xff) return INT64_MAX;
  if (first == 0xfe) return INT64_MIN;
  if (first == 0xfd) return in.number<std::int16_t>();
  return (nanos{first} - 32) * unit;
}

inline nanos some_period(input& in) noexcept {
  return (nanos{in.byte() % 64U} + 1) * unit;
}

// A capture that tells the model of its callback that the captures have died.
template <class Model>
class token {
 public:
  explicit token(Model& m) noexcept : model_(&m) {}

  token(token&& other) noexcept : model_(std::exchange(other.model_, nullptr)) {}

  ~token() {
    if (model_ != nullptr) model_->has_captures = false;
  }

 private:
  Model* model_;
};

template <class Error, class F>
bool throws(F f) {
  try {
    f();
  } catch (const Error&) {
    return true;
  } catch (const std::exception&) {
  }
  return false;
}

}  // namespace fuzz
