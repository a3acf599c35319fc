// The texts of exceptions.
#pragma once

#include <cstddef>
#include <string>

namespace vigil::testing_support {

// The text of the E that f throws; empty if f does not throw one.
template <class E, class F>
std::string text_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return {};
}

inline bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

inline std::size_t count_of(const std::string& text, const char* part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

}  // namespace vigil::testing_support
