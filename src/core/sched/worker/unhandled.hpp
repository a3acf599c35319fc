// Exceptions that nobody joins for: options::on_unhandled, or the end of the program.
#pragma once

#include "core/sched/fiber/fiber.hpp"

#include <vigil/detail/config.hpp>

#include <exception>

namespace VIGIL_DETAIL {

// Reports the exception. The runtime may have gone. Throws what options::on_unhandled
// throws.
VIGIL_FOR_IO void report_unhandled(fiber& f, std::exception_ptr error);
// The same at the bottom of a stack: an exception of on_unhandled ends the program.
void report_finally(fiber& f, std::exception_ptr error) noexcept;

}  // namespace VIGIL_DETAIL
