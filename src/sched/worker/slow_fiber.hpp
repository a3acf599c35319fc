// slow_fibers: options::slow_fiber, which names fibers that keep their worker
// too long: a std::mutex, a sleep of the thread, read(), an endless loop.
//
// Each worker notes here when a fiber begins a stretch (between two switches, or one
// callback) and looks at the clock again when the stretch ends, so none is missed. The
// overseer looks at stretches under way, so a fiber that never gives its worker back is
// named as well. The clock is the real one, even on virtual time. Without the
// option there is no object, and a switch looks at one null pointer.
#pragma once

#include "base/nanos.hpp"
#include "base/spinlock.hpp"
#include "sched/fiber/fiber.hpp"

#include <cstddef>
#include <memory>

namespace VIGIL_DETAIL {

class slow_fibers {
 public:
  slow_fibers(nanos limit, std::size_t workers);

  // Caller: the worker of that number. begins() ends the earlier stretch.
  void begins(std::size_t worker, fiber& f) noexcept;
  void ends(std::size_t worker) noexcept;

  // Called by the overseer: looks at the stretches under way, if it is time. Returns when
  // it is time again.
  nanos look_at_all(nanos now) noexcept;

 private:
  // A copy of all that a report says: the overseer follows no pointer to a fiber.
  struct alignas(cache_line) stretch {
    spinlock lock{lock_rank::slow_fiber};
    fiber* of VIGIL_GUARDED_BY(lock) = nullptr;  // for the worker; nullptr: no fiber runs
    nanos since VIGIL_GUARDED_BY(lock) = 0;
    bool named VIGIL_GUARDED_BY(lock) = false;
    bool callback VIGIL_GUARDED_BY(lock) = false;
    std::uint64_t id VIGIL_GUARDED_BY(lock) = 0;
    const char* file VIGIL_GUARDED_BY(lock) = nullptr;
    std::uint32_t line VIGIL_GUARDED_BY(lock) = 0;
    char name[fiber_identity::name_room] VIGIL_GUARDED_BY(lock) = {};
  };

  struct report {
    nanos held;
    bool goes_on;
    bool callback;
    std::uint64_t id;
    const char* file;
    std::uint32_t line;
    char name[fiber_identity::name_room];
  };

  bool look(stretch& s, nanos now, bool goes_on, report& r) noexcept VIGIL_REQUIRES(s.lock);
  void name(const report& r) noexcept VIGIL_EXCLUDES(sites_lock_);

  const nanos limit_;
  const std::size_t workers_;
  const std::unique_ptr<stretch[]> stretches_;

  // A callback has no fiber of its own, so it is named once for each place in the source,
  // as far as there is room.
  static constexpr std::size_t sites_kept = 256;
  spinlock sites_lock_{lock_rank::slow_fiber};
  site sites_[sites_kept] VIGIL_GUARDED_BY(sites_lock_) = {};
  std::size_t site_count_ VIGIL_GUARDED_BY(sites_lock_) = 0;

  nanos next_look_ = 0;  // the overseer's
};

}  // namespace VIGIL_DETAIL
