// Finds out which limit was hit when no stack can be had.
#pragma once

#include "core/machine/stack_pool.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// Reads /proc, may allocate. Throws stack_error.
[[noreturn]] void throw_stack_error(std::size_t usable, const stack_failure& failure);

}  // namespace VIGIL_DETAIL
