// Options with a number of workers, for the tests of the runtime.
#pragma once

#include <vigil/options.hpp>

#include <cstddef>

namespace vigil::testing_support {

inline options with_workers(std::size_t n) {
  options o;
  o.workers = n;
  return o;
}

}  // namespace vigil::testing_support
