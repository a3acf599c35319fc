// Helpers that the tests of groups share.
#pragma once

#include "core/cancel/failure.hpp"
#include "support/in_runtime.hpp"

#include <vigil/group.hpp>

namespace vigil::testing_support {

// The number of the failure that wait() throws; 0: none.
inline int number_thrown_by(group& g) {
  try {
    g.wait();
  } catch (const failure& f) {
    return f.number;
  }
  return 0;
}

}  // namespace vigil::testing_support
