// Converts contexts to and from std::stop_token. A separate header, which vigil.hpp does
// not include, because <stop_token> costs a fifth as much as context.hpp.
#pragma once

#include <vigil/context.hpp>

#include <stop_token>
#include <utility>

#ifndef __cpp_lib_jthread
#error "vigil needs std::stop_token, which libc++ before 20 has only with -fexperimental-library"
#endif

namespace VIGIL_PUBLIC {

namespace detail {
VIGIL_API context_core* with_stop_token(context_core* parent,
                                        std::stop_token token,
                                        const site& from);
VIGIL_API std::stop_token stop_token_of(context_core* c);
}  // namespace detail

// Makes a context as with_cancel does, which is also done when a stop is requested of the
// token. Throws what with_cancel throws. Thread safety: that of with_cancel; the thread
// that requests the stop cancels. Lifetime: the token's state does not keep the context
// alive. Shutdown: that of context. Cost: that of with_cancel, and two allocations.
inline cancellable with_stop_token(const context& parent,
                                   std::stop_token token,
                                   const site& from = site::current()) {
  return detail::cancellable_of(detail::with_stop_token(parent.core(), std::move(token), from));
}

// Returns a token on which a stop is requested when ctx is done. The canceller runs the
// token's callbacks, so they must not wait. Throws std::invalid_argument for a nil
// context, and std::bad_alloc. Thread safety: that of context. Lifetime: the token does
// not keep the context alive: once the context has gone without having been done, no stop
// is possible. Shutdown: that of context. Cost: a std::stop_source at the first call for
// a context.
[[nodiscard]] inline std::stop_token stop_token_of(const context& ctx) {
  return detail::stop_token_of(ctx.core());
}

}  // namespace VIGIL_PUBLIC
