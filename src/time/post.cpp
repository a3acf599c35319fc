// post and defer: timers that are due at once, and have no handle.
#include "sched/process.hpp"
#include "timer/timer_service.hpp"

#include <vigil/detail/fiber_core.hpp>
#include <vigil/error.hpp>
#include <vigil/post.hpp>

#include <utility>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

using internal::timer_service;

namespace {

void post_in(internal::scheduler& s, callback f, const site& from) {
  timer_service& service = internal::service_of(s);
  timer_record* const record = service.make_record(std::move(f), 0, false, from);
  try {
    service.post(*record);
  } catch (...) {
    record->drop_handle();
    throw;
  }
}

}  // namespace

void post(callback f, const site& from) {
  if (!f) throw_empty_function("vigil::post");
  internal::scheduler* const s = internal::current_scheduler();
  if (s == nullptr) {
    internal::process_check_fork("vigil::post");
    throw wrong_place("vigil::post: this thread has no runtime; use runtime::post there");
  }
  post_in(*s, std::move(f), from);
}

void post_to(void* sched, callback f, const site& from) {
  if (!f) throw_empty_function("vigil::runtime::post");
  internal::process_check_fork("vigil::runtime::post");
  post_in(*static_cast<internal::scheduler*>(sched), std::move(f), from);
}

void defer(callback f, const site& from) {
  if (!f) throw_empty_function("vigil::defer");
  internal::fiber& self = internal::require_fiber("defer (on a plain thread use runtime::post)");
  timer_service& service = internal::service_of(*self.sched);
  service.defer(self, *service.make_record(std::move(f), 0, false, from));
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil
