// Contexts to and from std::stop_token. Apart from context.hpp, and not in
// vigil.hpp: <stop_token> is a fifth of what context.hpp costs.
#pragma once

#include <vigil/context.hpp>

#include <stop_token>
#include <utility>

namespace vigil::inline VIGIL_ABI {

namespace detail {
VIGIL_API context_core* with_stop_token(context_core* parent, std::stop_token token);
VIGIL_API std::stop_token stop_token_of(context_core* c);
}  // namespace detail

// Done when a stop is requested of the token, too, as with_cancel otherwise. The
// token's state keeps no context.
inline cancellable with_stop_token(const context& parent, std::stop_token token) {
  return detail::cancellable_of(detail::with_stop_token(parent.core(), std::move(token)));
}

// A token on which a stop is requested when ctx is done. The canceller runs the
// callbacks of the token: they must not wait. The token does not keep the context:
// when the context goes without having been done, no stop is possible. Throws
// std::invalid_argument for a nil context.
[[nodiscard]] inline std::stop_token stop_token_of(const context& ctx) {
  return detail::stop_token_of(ctx.core());
}

}  // namespace vigil::inline VIGIL_ABI
