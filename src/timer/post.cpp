// post and defer: callbacks that are due at once, and have no handle. When they run
// says callback_queue.hpp.
#include "sched/run/process.hpp"
#include "timer/timer_service.hpp"

#include <vigil/detail/fiber_core.hpp>
#include <vigil/error.hpp>
#include <vigil/post.hpp>

#include <utility>

namespace vigil::inline VIGIL_ABI::detail {

// Pending and due, without a handle; it is queued, now or when it is released.
void timer_service::make_due(timer_record& t) noexcept {
  constexpr nanos long_ago = 1;
  t.when.store(long_ago);
  // ordering: made from the reference of the handle, which is still there.
  t.references.fetch_add(1, relaxed);
  owner_.count(timer_event::armed);
  t.drop_handle();  // pending: the captures stay
  t.queued = true;
  t.due_until = long_ago;
}

// Where the change is counted its end still touches t: the runner takes the claim under
// the same lock.
void timer_service::post(timer_record& t) {
  const bool from_outside = owner_.own_intake() == nullptr;
  const keepalive::change change(keepalive_, t, from_outside);
  if (from_outside && !is_of_this_run(t)) {
    throw runtime_gone("vigil::post: the runtime has ended");
  }
  make_due(t);
  parts_->callbacks.push_posted(t);
}

// Pending from now on, newest first, until callback_queue::push_deferred().
void timer_service::defer(fiber& self, timer_record& t) noexcept {
  {
    const keepalive::change change(keepalive_, t);
    make_due(t);
  }
  // ordering: the fiber's own word.
  const auto* const in = static_cast<const timer_record*>(self.callback.load(relaxed));
  t.deferred = true;
  t.deferred_by_deferred = in != nullptr && in->deferred;
  t.next = self.deferred;
  self.deferred = &t;
}

using detail::timer_service;

namespace {

void post_in(detail::scheduler& s, callback f, const site& from) {
  timer_service& service = detail::service_of(s);
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
  detail::scheduler* const s = detail::current_scheduler();
  if (s == nullptr) {
    detail::process_check_fork("vigil::post");
    throw wrong_place("vigil::post: this thread has no runtime; use runtime::post there");
  }
  post_in(*s, std::move(f), from);
}

void post_to(void* sched, callback f, const site& from) {
  if (!f) throw_empty_function("vigil::runtime::post");
  detail::process_check_fork("vigil::runtime::post");
  post_in(*static_cast<detail::scheduler*>(sched), std::move(f), from);
}

void defer(callback f, const site& from) {
  if (!f) throw_empty_function("vigil::defer");
  detail::fiber& self = detail::require_fiber("defer (on a plain thread use runtime::post)");
  timer_service& service = detail::service_of(*self.sched);
  service.defer(self, *service.make_record(std::move(f), 0, false, from));
}

}  // namespace vigil::inline VIGIL_ABI::detail
