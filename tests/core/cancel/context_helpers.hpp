// Helpers of the tests of contexts: queries of a context, and places to run.
#pragma once

#include "core/cancel/context_core.hpp"
#include "core/cancel/failure.hpp"
#include "support/in_runtime.hpp"

#include <cstddef>
#include <exception>
#include <system_error>

namespace vigil::testing_support {

// The number of the failure that is the cause; 0: none; -1: cancelled, -2: timed out.
inline int number_of(const context& ctx) {
  if (ctx.cause() == nullptr) return 0;
  try {
    std::rethrow_exception(ctx.cause());
  } catch (const failure& f) {
    return f.number;
  } catch (const cancelled& c) {
    CHECK(c.code() == ctx.error());
    return c.code() == std::errc::timed_out ? -2 : -1;
  }
}

inline bool is_closed(const receiver<void>& done) {
  return done.try_recv().is_closed();
}

inline bool is_cancelled(const context& ctx) {
  return ctx.is_done() && ctx.error() == std::errc::operation_canceled && is_closed(ctx.done());
}

inline bool is_timed_out(const context& ctx) {
  return ctx.is_done() && ctx.error() == std::errc::timed_out && is_closed(ctx.done());
}

inline bool is_open(const context& ctx) {
  return !ctx.is_done() && !ctx.error() && ctx.cause() == nullptr && !is_closed(ctx.done());
}

inline std::size_t children_of(const context& ctx) {
  return vigil::detail::cancel_node_of(ctx)->children();
}

inline std::size_t waiters_under(const context& ctx) {
  return vigil::detail::cancel_node_of(ctx)->waiters();
}

inline options one_worker() {
  options o;
  o.workers = 1;
  return o;
}

}  // namespace vigil::testing_support
