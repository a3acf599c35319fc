// once: idle -> running -> done, or back to idle if the function has thrown; then
// the first who waits runs its own.
#include "sync/wait_queue.hpp"
#include "sync/who_calls.hpp"

#include <vigil/detail/sync_core.hpp>

#include <stdexcept>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

using internal::outcome;
using internal::relaxed;
using internal::release;
using internal::told_list;

bool begin_once(once_core& o) {
  const internal::how_to_wait how{internal::wait_reason::once, "once::call"};
  internal::queue_guard guard(o.queue);
  for (;;) {
    switch (o.state.load(relaxed)) {  // ordering: changed under the guard
      case once_core::done:
        return false;
      case once_core::idle:
        o.state.store(once_core::running, relaxed);  // ordering: as above
        o.runner = internal::who_calls();
        return true;
      default:
        break;
    }
    if (o.runner == internal::who_calls()) {
      throw std::logic_error(
          "vigil::once::call: the function that it runs has called it again, which would wait for "
          "itself for ever; let the function not use what it makes");
    }
    internal::caller self;
    internal::before_waiting(self, how, guard);
    queued_wait own;
    const outcome ended = internal::wait_in(
        internal::all_of(o.queue), own, self, how, guard, [](told_list&) noexcept {});
    if (ended == outcome::stopped) self.stop();
    guard.lock();
  }
}

void end_once(once_core& o, bool done) noexcept {
  told_list told;
  {
    const internal::queue_guard guard(o.queue);
    o.runner = nullptr;
    // Pairs with the acquire in is_done().
    o.state.store(done ? once_core::done : once_core::idle, release);
    internal::all_of(o.queue).claim_all(told);
  }
  told.deliver();
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil
