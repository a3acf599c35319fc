// An error that the tests of contexts and groups identify by its number.
#pragma once

#include <exception>

namespace vigil::testing_support {

struct failure {
  int number;
};

// The failure of that number; null for 0.
inline std::exception_ptr cause_of(int number) {
  return number == 0 ? nullptr : std::make_exception_ptr(failure{number});
}

// The number of the failure; 0 for none. Any other exception is rethrown.
inline int number_of(const std::exception_ptr& cause) {
  if (cause == nullptr) return 0;
  try {
    std::rethrow_exception(cause);
  } catch (const failure& f) {
    return f.number;
  }
}

}  // namespace vigil::testing_support
