// What holds the program (exit_when::all_done).
//
// A timer holds it while it is pending and referenced. In such a run whoever changes
// one or the other does so under timer_owner::outside, and counts what has come of it in one
// word before the lock is released. So a hold that goes from one timer to another is
// counted there before it is let go here.
//
// Whoever may let go of the program is outside work from before the change until it
// has told the main fiber and had the workers look again (scheduler::enter, leave). In
// between a worker may find nothing pending and the program held, which would be a
// deadlock.
#include "timer/timer_service.hpp"

#include <algorithm>

namespace vigil::internal {

void timer_service::hold_change::begin(timer_service& service,
                                       timer_record& t) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  service.owner_.outside.lock();
  service_ = &service;
  timer_ = &t;
  entered_ = nullptr;
  // What is never referenced changes under locks under which nobody may be told.
  if (counts_ && service.is_of_this_run(t) && (t.referenced.load() || t.holds)) {
    entered_ = service.sched();
    entered_->enter();
  }
}

void timer_service::hold_change::end() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  if (counts_ && service_->is_of_this_run(*timer_)) {
    const bool holds = timer_->when.load() > 0 && timer_->referenced.load();
    if (holds && !timer_->holds) service_->held_.fetch_add(1);
    if (!holds && timer_->holds) service_->held_.fetch_sub(1);
    timer_->holds = holds;
  }
  service_->owner_.outside.unlock();
  if (entered_ != nullptr) entered_->leave();
}

bool timer_service::stop_counted(timer_record& t) noexcept {
  const hold_change change(*this, t);
  return stop(static_cast<runtime_timer&>(t));
}

// The heap in slices, as all upkeep: what moves meanwhile may be listed twice, or
// not at all.
std::size_t timer_service::list_holders(timer_holder* out, std::size_t room) noexcept {
  std::size_t n = 0;
  const auto look = [&](timer_record& t) {
    const nanos deadline = t.when.load();
    if (deadline <= 0 || !t.referenced.load()) return;
    if (n < room) out[n] = {t.made_at, deadline, t.is_periodic};
    ++n;
  };
  const auto look_through = [&](const heap_entry& e) {
    if (e.timer->kind != timer_kind::go_func || e.timer->filed.load() != e.key) return;
    look(static_cast<timer_record&>(*e.timer));
  };
  // Before the heap, into which they go.
  for (const auto& in : intakes_) {
    const lock_guard merging(heap_lock_);
    const lock_guard adding(in->lock);
    for (std::uint32_t i = 0; i < in->size.load(); ++i)
      look_through(in->entries[i]);
  }
  for (std::size_t next = 0, size = 1; next < size;) {
    const lock_guard guard(heap_lock_);
    size = heap_->size();
    for (const std::size_t end = std::min(size, next + slice); next < end; ++next)
      look_through((*heap_)[next]);
  }
  const lock_guard guard(callbacks_lock_);
  for (timer_record* t = callbacks_.front(); t != nullptr; t = t->next) {
    // One that was reset to now may have an entry in the heap, and be listed.
    if (const nanos key = t->filed.load();
        key == runtime_timer::nothing || key == runtime_timer::held)
      look(*t);
  }
  return n;
}

}  // namespace vigil::internal
