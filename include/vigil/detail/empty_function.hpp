// Recognises empty functions: null pointers, and a std::function without a target.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <type_traits>

namespace VIGIL_DETAIL {

[[noreturn]] VIGIL_API void throw_empty_function(const char* where);

template <class F>
constexpr bool is_empty_function([[maybe_unused]] const F& f) {
  // A class that cannot be made of nullptr is never empty; looking for its operator==
  // would try those of its template arguments.
  if constexpr (std::is_function_v<F> || !std::is_constructible_v<F, std::nullptr_t>) {
    return false;
  } else if constexpr (requires { f == nullptr; }) {
    return f == nullptr;
  } else {
    return false;
  }
}

// Refuses an empty function; the error names the call.
// Throws: std::invalid_argument.
template <class F>
constexpr void refuse_empty(const char* call, const F& f) {
  if (is_empty_function(f)) throw_empty_function(call);
}

}  // namespace VIGIL_DETAIL
