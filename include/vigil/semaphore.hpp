// semaphore: a number of permits.
//
//   vigil::semaphore connections(10);
//   const vigil::scoped_permit one(connections);  // waits for it
//
// sync.hpp has the rules for all locks and counters, and for how their waits end.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstdint>
#include <utility>

namespace VIGIL_PUBLIC {

// adopt_permit_t: tells scoped_permit that its permits have been acquired already. Its
// object is adopt_permit. Throws nothing. Thread safety: a constant.
struct adopt_permit_t {
  explicit adopt_permit_t() = default;
};

// adopt_permit: the argument of scoped_permit for permits that are held already.
inline constexpr adopt_permit_t adopt_permit{};

// semaphore: a number of permits, given first come, first served: a request for many is
// not overtaken by requests for few. A request for more permits than there ever are waits
// until its deadline, and so do those behind it.
//
// 0 permits are granted at once. Throws std::invalid_argument for a negative number; from
// waits `stopped`, wrong_place, `cancelled` with a context, std::bad_alloc with a time;
// std::overflow_error from release(). Thread safety: fibers of any runtime and plain
// threads. Lifetime: it may be destroyed when nothing waits in it, and no scoped_permit
// of it lives. Shutdown: ends a wait by `stopped`, with none taken. Cost: a short lock
// for each call, and no allocation. Behaviour: Go's semaphore.Weighted; the names are
// those of std::counting_semaphore, each with a number of permits.
class semaphore {
 public:
  constexpr explicit semaphore(std::int64_t permits, const site& from = site::current())
      : core_(from) {
    detail::refuse_negative("vigil::semaphore: the number of permits", permits);
    core_.count = permits;
    if (from.name != 0) detail::remember_users(core_);
  }

  constexpr ~semaphore() {
    if (core_.users != nullptr) detail::forget_users(core_);
  }

  semaphore(const semaphore&) = delete;
  semaphore& operator=(const semaphore&) = delete;

  void acquire(std::int64_t n = 1) { detail::acquire_permits(core_, n, detail::no_limit); }

  // The same; throws `cancelled`, with none taken, when ctx is done.
  void acquire(std::int64_t n, const context& ctx) {
    detail::acquire_permits(core_, n, detail::cancelled_by(ctx));
  }

  void acquire(const context& ctx) { acquire(1, ctx); }

  // Takes the permits if they are free and nothing waits.
  [[nodiscard]] bool try_acquire(std::int64_t n = 1) {
    return detail::try_acquire_permits(core_, n);
  }

  // Returns false, with none taken, if the timeout passed first.
  template <detail::duration_argument D>
  [[nodiscard]] bool try_acquire_for(const D& timeout, std::int64_t n = 1) {
    return detail::acquire_permits(core_, n, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool try_acquire_until(const Time& t, std::int64_t n = 1) {
    return detail::acquire_permits(core_, n, detail::until(t));
  }

  // Any fiber or thread may release permits, including ones never acquired. Throws
  // std::overflow_error, with nothing changed, beyond 2^63 - 1.
  void release(std::int64_t n = 1) { detail::release_permits(core_, n); }

  // The number of free permits; others may take them at any moment.
  std::int64_t available() const noexcept { return detail::permits_of(core_); }

 private:
  friend struct detail::core_access;

  detail::permit_core core_;
};

// scoped_permit: holds permits, and gives them back at the end of the scope, however that
// is left. It can be moved, even into a fiber's function, and then gives them back at the
// end of its new scope. Throws what semaphore::acquire() throws, and
// std::invalid_argument for a negative n. Thread safety: one fiber or thread at a time.
// Lifetime: the semaphore outlives it. Shutdown: an unwound fiber gives them back. Cost:
// that of acquire() and release(). Go: defer sem.Release(n).
//
//   const vigil::scoped_permit one(connections);  // waits for it
//
//   if (!connections.try_acquire()) return;
//   const vigil::scoped_permit one(connections, vigil::adopt_permit);
class [[nodiscard]] scoped_permit {
 public:
  // Acquires n permits; throws what semaphore::acquire throws.
  explicit scoped_permit(semaphore& of, std::int64_t n = 1) : of_(&of), n_(n) { of.acquire(n); }

  // The same; throws `cancelled`, with none taken, when ctx is done.
  scoped_permit(semaphore& of, std::int64_t n, const context& ctx) : of_(&of), n_(n) {
    of.acquire(n, ctx);
  }

  scoped_permit(semaphore& of, const context& ctx) : scoped_permit(of, 1, ctx) {}

  // Takes over n permits that have been acquired already. Throws std::invalid_argument if
  // n is negative.
  scoped_permit(semaphore& of, adopt_permit_t, std::int64_t n = 1) : of_(&of), n_(n) {
    detail::refuse_negative("vigil::scoped_permit: the number of permits", n);
  }

  scoped_permit(scoped_permit&& other) noexcept
      : of_(std::exchange(other.of_, nullptr)), n_(other.n_) {}

  scoped_permit& operator=(scoped_permit&&) = delete;

  ~scoped_permit() {
    if (of_ != nullptr) of_->release(n_);
  }

 private:
  semaphore* of_;
  std::int64_t n_;
};

}  // namespace VIGIL_PUBLIC
