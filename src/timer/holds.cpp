// What holds the program (exit_when::all_done).
//
// A timer holds it while it is pending and referenced. No counter is shared:
// each worker counts what it has noticed, and the sum is asked for only when no
// other fiber is left. Whoever changes `when` or `referenced` then brings
// `holds` into line with them, looks again, and goes on until they agree; so the
// last of several who do so at once leaves it right, and each change of `holds`
// is counted by who made it.
//
// Somebody may look in the middle of that: a worker, when nothing is pending any
// more and the count still says that the program is held, so that nothing could
// ever happen again; or the main fiber, which adds up a hold that goes from one
// timer to another before it is counted and after it is let go. A fiber in the
// middle is alive. Everybody else, handlers on a worker's own stack included, is
// outside work for as long (scheduler::enter), which the main fiber sees
// afterwards as well (all_done()), and has the workers look again at its end.
#include "timer/timer_service.hpp"

#include <algorithm>

namespace vigil::internal {

// own_intake(), if the caller is a fiber that is counted as alive: one of the
// user's, or a runner with a callback.
intake* timer_service::living_intake() const noexcept {
  const fiber* const f = current_fiber();
  if (f == nullptr) return nullptr;
  const bool lives = f->role == fiber_role::user || f->role == fiber_role::main ||
                     f->callback.load(relaxed) != nullptr;  // ordering: the fiber's own word
  return lives ? own_intake() : nullptr;
}

void timer_service::count_hold(timer_record& t, intake* own) noexcept {
  const auto wanted = [&t] { return t.when.load() > 0 && t.referenced.load(); };
  for (;;) {
    const bool now = wanted();
    if (t.holds.exchange(now) != now) {
      if (own != nullptr) {
        (now ? own->counters.held : own->counters.let_go).add();
      } else {
        (now ? outside_.held : outside_.let_go).fetch_add(1);
      }
    }
    if (wanted() == now) return;
  }
}

bool timer_service::stop_counted(timer_record& t) noexcept {
  if (intake* const own = living_intake()) {
    const bool prevented = stop(static_cast<runtime_timer&>(t));
    if (prevented && is_of_this_run(t)) count_hold(t, own);
    return prevented;
  }
  scheduler* s = nullptr;
  bool prevented = false;
  {
    const lock_guard guard(outside_lock_);
    if (is_of_this_run(t)) {
      s = sched();
      s->enter();
    }
    prevented = stop(static_cast<runtime_timer&>(t));
    if (prevented && s != nullptr) count_hold(t, nullptr);
  }
  if (s != nullptr) s->leave();
  return prevented;
}

// Caller: holds a reference to the record, and no lock unless the timer is never
// referenced: to let go of the program is to tell the main fiber.
void timer_service::hold_changed(timer_record& t) noexcept {
  // Neither before nor after. Who references it from now on sees the new `when`;
  // who did before and counts it only now looks again.
  if (!t.referenced.load() && !t.holds.load()) return;
  if (intake* const own = living_intake()) {
    if (is_of_this_run(t)) count_hold(t, own);
    return;  // the fiber holds the program, and its end is looked at
  }
  scheduler* s = nullptr;
  {
    const lock_guard guard(outside_lock_);
    if (!is_of_this_run(t)) return;
    s = sched();
    s->enter();
    count_hold(t, nullptr);
  }
  s->leave();
}

bool timer_service::holds_program() const noexcept {
  // A sum of many counters: exact if nobody counts meanwhile, which the caller
  // finds out. What fibers counted is there, since they have ended.
  unsigned long held = outside_.held.load() - outside_.let_go.load();
  for (const auto& in : intakes_)
    held += in->counters.held.get() - in->counters.let_go.get();
  return held != 0;
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
