// Checks, and the end of a program that fails one.
//
// VIGIL_CHECK   always on: misuse by the caller that must not go on, and
//               broken invariants that are cheap to see.
// VIGIL_ASSERT  debug builds only: invariants that cost something to see.
// fatal()       prints `vigil: ` and the message, then the fiber dump if one
//               has been registered, then aborts.
//
// Messages say what was expected and what to do about it.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// Registered once by the runtime; called by fatal() before abort. Must be
// async-signal-safe: it writes to descriptor 2.
using fatal_hook = void (*)() noexcept;
void set_fatal_hook(fatal_hook hook) noexcept;

// Takes a printf format, so that callers can name fibers and limits. May be called on any
// thread and any stack; needs no lock and no heap. Formats into 1 KiB and cuts the rest.
[[noreturn]] VIGIL_FOR_IO void fatal(const char* format, ...) noexcept
    __attribute__((format(printf, 1, 2)));

// The same without the abort, for warnings.
VIGIL_FOR_IO void warn(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

// Writes it to standard error in one piece, as far as that goes. Async-signal-safe.
VIGIL_FOR_IO void write_to_stderr(const char* text, std::size_t size) noexcept;

[[noreturn]] VIGIL_FOR_IO void check_failed(const char* condition,
                                            const char* message,
                                            const char* file,
                                            int line) noexcept;

}  // namespace VIGIL_DETAIL

#define VIGIL_CHECK(condition, message) \
  (static_cast<bool>(condition)         \
       ? static_cast<void>(0)           \
       : ::vigil::detail::check_failed(#condition, message, __FILE__, __LINE__))

#ifdef NDEBUG
#define VIGIL_ASSERT(condition, message) static_cast<void>(sizeof(static_cast<bool>(condition)))
#else
#define VIGIL_ASSERT(condition, message) VIGIL_CHECK(condition, message)
#endif
