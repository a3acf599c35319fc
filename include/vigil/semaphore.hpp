// semaphore: a number of permits.
//
//   vigil::semaphore connections(10);
//   const vigil::scoped_permit one(connections);  // waits for it
//
// sync.hpp has the rules for all locks and counters, and for the ends of their waits.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstdint>
#include <utility>

namespace vigil::inline VIGIL_ABI {

// Says to scoped_permit that its permits are acquired already.
struct adopt_permit_t {
  explicit adopt_permit_t() = default;
};

inline constexpr adopt_permit_t adopt_permit{};

// A number of permits. First come, first served: a request for many is not
// overtaken by those for few. Behaviour: Go's semaphore.Weighted; the names are
// those of std::counting_semaphore, each call with a number of permits.
//
// Each call throws std::invalid_argument for a negative number; 0 permits are had
// at once. A request that is larger than all permits there ever are waits until
// its deadline, and those behind it with it.
class semaphore {
 public:
  constexpr explicit semaphore(std::int64_t permits) {
    detail::refuse_negative("vigil::semaphore: the number of permits", permits);
    core_.count = permits;
  }

  semaphore(const semaphore&) = delete;
  semaphore& operator=(const semaphore&) = delete;

  void acquire(std::int64_t n = 1) { detail::acquire_permits(core_, n, detail::no_limit); }

  // At most until ctx is done: then throws `cancelled`, with none taken.
  void acquire(std::int64_t n, const context& ctx) {
    detail::acquire_permits(core_, n, detail::cancelled_by(ctx));
  }

  void acquire(const context& ctx) { acquire(1, ctx); }

  // Only if they are free and nobody waits.
  [[nodiscard]] bool try_acquire(std::int64_t n = 1) {
    return detail::try_acquire_permits(core_, n);
  }

  // False, with none taken, if the timeout passed first.
  template <detail::duration_like D>
  [[nodiscard]] bool try_acquire_for(const D& timeout, std::int64_t n = 1) {
    return detail::acquire_permits(core_, n, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool try_acquire_until(const Time& t, std::int64_t n = 1) {
    return detail::acquire_permits(core_, n, detail::until(t));
  }

  // Any fiber or thread may release permits, including ones never acquired.
  // Throws std::overflow_error, with nothing changed, beyond 2^63 - 1.
  void release(std::int64_t n = 1) { detail::release_permits(core_, n); }

  // How many are free; others may take them at any moment.
  std::int64_t available() const noexcept { return detail::count_of(core_); }

 private:
  detail::counter_core core_;
};

// Permits that are given back at the end of the scope, however that is left. Moved,
// even into a fiber's function, it gives them back at the end of where it is then.
//
//   const vigil::scoped_permit one(connections);  // waits for it
//
//   if (!connections.try_acquire()) return;
//   const vigil::scoped_permit one(connections, vigil::adopt_permit);
class [[nodiscard]] scoped_permit {
 public:
  // Acquires n; throws what semaphore::acquire throws.
  explicit scoped_permit(semaphore& of, std::int64_t n = 1) : of_(&of), n_(n) { of.acquire(n); }

  // At most until ctx is done: then throws `cancelled`, with none taken.
  scoped_permit(semaphore& of, std::int64_t n, const context& ctx) : of_(&of), n_(n) {
    of.acquire(n, ctx);
  }

  scoped_permit(semaphore& of, const context& ctx) : scoped_permit(of, 1, ctx) {}

  // For n that are acquired already; throws std::invalid_argument if n is negative.
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

}  // namespace vigil::inline VIGIL_ABI
