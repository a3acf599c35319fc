// An error that the tests of contexts and groups know by its number.
#pragma once

#include <exception>

namespace vigil::testing_support {

struct failure {
  int number;
};

// 0: none.
inline std::exception_ptr cause_of(int number) {
  return number == 0 ? nullptr : std::make_exception_ptr(failure{number});
}

// 0: none. Another exception than a failure comes out.
inline int number_of(const std::exception_ptr& cause) {
  if (cause == nullptr) return 0;
  try {
    std::rethrow_exception(cause);
  } catch (const failure& f) {
    return f.number;
  }
}

}  // namespace vigil::testing_support
