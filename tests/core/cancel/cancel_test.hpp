// Includes and names that the tests of contexts and groups share, queries of a context,
// and places to run.
#pragma once

#include "core/cancel/context_core.hpp"
#include "support/in_runtime.hpp"

#include <vigil/context.hpp>
#include <vigil/group.hpp>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <system_error>
#include <vector>

namespace vigil::testing_support {

using namespace std::chrono_literals;
using vigil::background;
using vigil::cancelled;
using vigil::clock;
using vigil::context;
using vigil::group;
using vigil::make_channel;
using vigil::sleep_for;
using vigil::with_cancel;
using vigil::with_timeout;
using vigil::without_cancel;
using vigil::testing::settle;

// An error that tests identify by its number.
struct failure {
  int number;
};

// The failure of that number; null for 0.
inline std::exception_ptr cause_of(int number) {
  return number == 0 ? nullptr : std::make_exception_ptr(failure{number});
}

// The number of the failure; 0 for none. Any other exception is rethrown.
inline int number_of(const std::exception_ptr& cause) {
  if (cause == nullptr) return 0;
  try {
    std::rethrow_exception(cause);
  } catch (const failure& f) {
    return f.number;
  }
}

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
