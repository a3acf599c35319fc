// post and defer: callbacks that are due at once. callback_queue.hpp says when they run.
#include "core/timer/timer_service.hpp"

#include <vigil/detail/fiber_core.hpp>
#include <vigil/error.hpp>
#include <vigil/post.hpp>

#include <utility>

namespace VIGIL_DETAIL {

// Makes t pending and due, and drops one handle. It counts as queued, even if it is
// queued only when its fiber releases it.
void timer_service::make_due(timer_record& t) noexcept {
  constexpr nanos long_ago = 1;
  t.when.store(long_ago);
  // ordering: made from the handle's reference, which is still there.
  t.references.fetch_add(1, order::relaxed);
  owner_.count(timer_event::armed);
  t.release();  // pending: the captures stay
  t.queued = true;
  t.due_until = long_ago;
}

// If the change is counted, its end still touches t. That is safe: the runner takes the
// claim under the same lock.
void timer_service::post(timer_record& t) {
  const bool from_outside = owner_.own_intake() == nullptr;
  const keepalive::change change(keepalive_, t, from_outside);
  if (from_outside && !is_of_this_run(t)) {
    throw runtime_gone("vigil::post: the runtime has ended");
  }
  make_due(t);
  parts_->callbacks.push_posted(t);
}

// Adds t to the fiber's list, newest first, where it is pending until
// callback_queue::push_deferred() queues it.
void timer_service::defer(fiber& self, timer_record& t) noexcept {
  {
    const keepalive::change change(keepalive_, t);
    make_due(t);
  }
  // ordering: the fiber's own word.
  const auto* const in = static_cast<const timer_record*>(self.callback.timer.load(order::relaxed));
  t.deferred = true;
  t.deferred_by_deferred = in != nullptr && in->deferred;
  t.next = self.deferred;
  self.deferred = &t;
}

namespace {

// The record's first handle is dropped when it is due; `with_handle` makes the caller's.
timer_record* post_in(
    scheduler& s, callback f, const site& from, bool with_handle, bool is_handler = false) {
  timer_service& service = service_of(s);
  timer_record* const record = service.make_record(std::move(f), 0, false, from);
  record->is_handler = is_handler;
  if (with_handle) record->retain();
  try {
    service.post(*record);
  } catch (...) {
    record->release();
    if (with_handle) record->release();
    throw;
  }
  return with_handle ? record : nullptr;
}

}  // namespace

timer_record* post(callback f, const site& from, bool with_handle) {
  if (!f) throw_empty_function("vigil::post");
  scheduler* const s = current_scheduler();
  if (s == nullptr) refuse_without_runtime("vigil::post", "use runtime::post there");
  return post_in(*s, std::move(f), from, with_handle);
}

timer_record* post_to(scheduler& sched, callback f, const site& from, bool with_handle) {
  if (!f) throw_empty_function("vigil::runtime::post");
  return post_in(sched, std::move(f), from, with_handle);
}

void post_handler_to(scheduler& sched, callback f, const site& from) {
  post_in(sched, std::move(f), from, false, true);
}

timer_record* defer(callback f, const site& from, bool with_handle) {
  if (!f) throw_empty_function("vigil::defer");
  fiber& self = require_fiber("defer (on a plain thread use runtime::post)");
  timer_service& service = service_of(*self.sched);
  timer_record* const record = service.make_record(std::move(f), 0, false, from);
  if (with_handle) record->retain();
  service.defer(self, *record);
  return with_handle ? record : nullptr;
}

}  // namespace VIGIL_DETAIL
