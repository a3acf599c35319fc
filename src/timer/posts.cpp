// post and defer: callbacks that are due at once, and have no handle.
//
// A posted one goes to the tail of the queue (callbacks.cpp), and a round of them
// ends where the queue did as it began. A deferred one waits at its fiber until
// that gives its worker away or has run the last of the user's code; it is pending
// meanwhile, so that nobody takes the run for done.
#include "sched/scheduler.hpp"
#include "timer/timer_service.hpp"

#include <vigil/error.hpp>

#include <utility>

namespace vigil::internal {

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
  {
    const lock_guard guard(callbacks_lock_);
    t.posted_as = ++posted_;
    callbacks_.push_back(t);
    sched()->callbacks_waiting.store(callbacks_.size());  // seq_cst: A1 of idle.hpp
  }
  sched()->work_added();
}

// Pending from now on, newest first, until release_deferred().
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

// To the head of the queue; what a deferred one has deferred to the tail, as if
// posted, or a chain of them would keep all others waiting.
void timer_service::release_deferred(fiber& f) noexcept {
  timer_record* newest = std::exchange(f.deferred, nullptr);
  const bool to_tail = newest->deferred_by_deferred;
  timer_record* oldest = nullptr;
  for (timer_record* t = newest; t != nullptr;) {
    timer_record* const earlier = t->next;
    t->next = oldest;
    oldest = t;
    t = earlier;
  }
  chain<timer_record, &timer_record::next> all;
  for (timer_record* t = oldest; t != nullptr;) {
    timer_record* const later = t->next;
    all.push_back(*t);
    t = later;
  }
  {
    const lock_guard guard(callbacks_lock_);
    if (to_tail) {
      for (timer_record* t = all.front(); t != nullptr; t = t->next)
        t->posted_as = ++posted_;
      callbacks_.splice_back(all);
    } else {
      all.splice_back(callbacks_);
      callbacks_.splice_back(all);
    }
    sched()->callbacks_waiting.store(callbacks_.size());  // seq_cst: A1 of idle.hpp
  }
  sched()->work_added();
}

}  // namespace vigil::internal
