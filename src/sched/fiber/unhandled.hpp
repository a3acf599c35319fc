// Exceptions that nobody joins for: options::on_unhandled, or the end of the program.
#pragma once

#include "sched/fiber/fiber.hpp"

#include <vigil/detail/config.hpp>

#include <exception>

namespace vigil::inline VIGIL_ABI::detail {

// May be called when the runtime has gone. Throws what options::on_unhandled throws.
VIGIL_FOR_IO void report_unhandled(fiber& f, std::exception_ptr error);
// For the bottom of a stack: what on_unhandled throws ends the program.
void report_finally(fiber& f, std::exception_ptr error) noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
