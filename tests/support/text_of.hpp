// The texts of exceptions.
#pragma once

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

}  // namespace vigil::testing_support
