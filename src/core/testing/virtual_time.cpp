#include "core/base/assert.hpp"
#include "core/runtime/runtime_core.hpp"
#include "core/sched/run_core.hpp"
#include "core/sync/lock_watch.hpp"

#include <vigil/detail/sync_core.hpp>
#include <vigil/testing.hpp>

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace VIGIL_PUBLIC::testing {

namespace detail_virtual {

namespace {

class watched_locks {
 public:
  watched_locks() noexcept {
    detail::change_lock_watch(
        [](std::uint32_t reasons) { return reasons + detail::lock_watch::virtual_run; });
  }

  ~watched_locks() {
    detail::change_lock_watch(
        [](std::uint32_t reasons) { return reasons - detail::lock_watch::virtual_run; });
  }

  watched_locks(const watched_locks&) = delete;
  watched_locks& operator=(const watched_locks&) = delete;
};

}  // namespace

void run_main(const virtual_options& options, detail::call_ref main) {
  detail::scheduler_options o = detail::checked(options.runtime);
  o.workers = 1;
  o.virtual_time = true;
  o.seed = options.seed;
  if (o.seed == 0) {
    const char* const given = std::getenv("VIGIL_SEED");
    o.seed = given != nullptr ? std::strtoull(given, nullptr, 0) : 0;
    if (o.seed == 0) o.seed = 1;
  }
  // For this run alone a lock's fast path is closed (sync/lock_turns.hpp).
  const watched_locks watched;
  runtime rt = detail::runtime_access::over(std::make_unique<detail::runtime_core>(o));
  try {
    detail::run_core& sched = detail::runtime_access::core_of(rt).sched;
    if (sched.run(main)) detail::throw_main_stopped(sched.end.stop_signal());
  } catch (...) {
    detail::warn("this run on virtual time failed with seed %llu; VIGIL_SEED=%llu replays it",
                 static_cast<unsigned long long>(o.seed),
                 static_cast<unsigned long long>(o.seed));
    throw;
  }
}

}  // namespace detail_virtual

void settle() {
  detail::run_of(*detail::require_fiber("testing::settle").sched).on_virtual_time.settle();
}

}  // namespace VIGIL_PUBLIC::testing
