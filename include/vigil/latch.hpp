// latch: counts down to zero once.
//
// sync.hpp has the rules for all locks and counters, and for how their waits end.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstdint>

namespace VIGIL_PUBLIC {

// latch: lets all waiters continue once its count is zero. Throws std::invalid_argument
// for a negative count, std::logic_error below zero; from waits `stopped`, wrong_place,
// `cancelled` with a context, std::bad_alloc with a time. Thread safety: fibers of any
// runtime and plain threads; writes before a count_down() are visible after the wait that
// it ends. Lifetime: it may be destroyed when nothing waits in it, even right after the
// caller's own wait. Shutdown: ends a wait by `stopped`. Cost: a short lock for each
// call, and no allocation. Behaviour: std::latch, with timeouts.
class latch {
 public:
  // Throws std::invalid_argument for a negative count.
  constexpr explicit latch(std::int64_t count, const site& from = site::current()) : core_(from) {
    detail::refuse_negative("vigil::latch: the count", count);
    core_.count = count;
  }

  latch(const latch&) = delete;
  latch& operator=(const latch&) = delete;

  // Throws std::logic_error, with nothing changed, if n is negative or larger than the
  // count.
  void count_down(std::int64_t n = 1) { detail::count_down(core_, n); }

  // Whether the count is zero.
  bool try_wait() const noexcept { return count() == 0; }

  std::int64_t count() const noexcept { return detail::count_of(core_); }

  void wait() { detail::wait(core_, true, detail::no_limit); }

  // The same; throws `cancelled` when ctx is done.
  void wait(const context& ctx) { detail::wait(core_, true, detail::cancelled_by(ctx)); }

  template <detail::duration_argument D>
  bool wait_for(const D& timeout) {
    return detail::wait(core_, true, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  bool wait_until(const Time& t) {
    return detail::wait(core_, true, detail::until(t));
  }

  void arrive_and_wait(std::int64_t n = 1) { arrive_within(n, detail::no_limit); }

  // Counts as an arrival even if it throws `cancelled`.
  void arrive_and_wait(std::int64_t n, const context& ctx) {
    arrive_within(n, detail::cancelled_by(ctx));
  }

  void arrive_and_wait(const context& ctx) { arrive_and_wait(1, ctx); }

 private:
  friend struct detail::core_access;

  void arrive_within(std::int64_t n, const detail::wait_limit& limit) {
    // Kept, because others may change the caller's context once it has arrived.
    const detail::kept_limit kept(limit);
    count_down(n);
    detail::wait(core_, true, kept.limit);
  }

  detail::counter_core core_;
};

}  // namespace VIGIL_PUBLIC
