// The heap's upkeep: merging the intakes, publishing the next deadline,
// dropping dead entries. All of it under the heap's lock, in bounded pieces.
// Invariants S1 and S3: timer_service.hpp.
#include "timer/timer_service.hpp"

#include <algorithm>

namespace vigil::internal {

// Takes a whole intake in, dropping what died there.
void timer_service::merge(intake& in) noexcept {
  heap_entry fresh[intake::capacity];
  std::uint32_t n = 0;
  {
    const lock_guard guard(in.lock);
    n = in.size.load(relaxed);  // ordering: under the lock
    std::copy_n(in.entries, n, fresh);
    // Pairs with the loads of publish() and drain(): what was taken is taken.
    in.size.store(0, release);
  }
  granted_ -= n;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (ask(fresh[i]) == speaks::no) {
      drop_reference(*fresh[i].timer);
    } else {
      heap_->push(fresh[i]);
    }
  }
}

void timer_service::drain() noexcept {
  for (const auto& in : intakes_) {
    if (in->size.load() != 0) merge(*in);
  }
}

// S1: the only place where next_deadline is raised. Never over a lowering that
// this has not taken in: then the compare-exchange fails.
void timer_service::publish() noexcept {
  for (;;) {
    nanos seen = sched()->next_deadline.load();
    drain();
    nanos next = never;
    if (!heap_->empty() && heap_->top().key < runtime_timer::latest) next = heap_->top().key;
    heap_size_.store(heap_->size(), relaxed);  // ordering: a statistic
    if (next != seen && !sched()->next_deadline.compare_exchange_strong(seen, next)) continue;
    bool more = false;
    for (const auto& in : intakes_)
      more = more || in->size.load() != 0;
    if (!more) return;
  }
}

// Whether anything will come of an entry. One that speaks for an idle timer,
// or for a deadline later than its key, is withdrawn first and then `when` is
// looked at again (T1); it may come out with a later key.
timer_service::speaks timer_service::ask(heap_entry& e) noexcept {
  runtime_timer& t = *e.timer;
  if (t.filed.load() != e.key) return speaks::no;
  nanos deadline = t.when.load();
  if (deadline > 0 && t.key_for(deadline) <= e.key) return speaks::yes;
  nanos expected = e.key;
  if (!t.filed.compare_exchange_strong(expected, runtime_timer::nothing)) return speaks::no;
  deadline = t.when.load();
  if (deadline <= 0) return speaks::no;
  const nanos key = t.key_for(deadline);
  expected = runtime_timer::nothing;
  if (!t.filed.compare_exchange_strong(expected, key)) return speaks::no;
  const bool moved = key != e.key;
  e.key = key;
  e.slack_us = t.slack_us.load(relaxed);  // ordering: as in entry_for()
  return moved ? speaks::later : speaks::yes;
}

// Looks at a few entries for dead ones. Entries that climb past the cursor are
// met in the next round.
void timer_service::sweep(std::size_t budget) noexcept {
  while (budget-- > 0 && !heap_->empty()) {
    if (sweep_at_ >= heap_->size()) sweep_at_ = 0;
    heap_entry e = (*heap_)[sweep_at_];
    switch (ask(e)) {
      case speaks::yes:
        ++sweep_at_;
        break;
      case speaks::later:
        heap_->remove(sweep_at_);
        heap_->push(e);
        break;
      case speaks::no:
        heap_->remove(sweep_at_);
        drop_reference(*e.timer);
        break;
    }
  }
}

// Enough of it that a worker does not sleep to a dead deadline, and that dead
// entries stay bounded; in slices, so that nobody waits long for the heap.
bool timer_service::tidy() noexcept {
  std::size_t budget = slice;
  const std::uint64_t live = pending();
  const lock_guard guard(heap_lock_);
  drain();
  bool clean = heap_->empty();
  while (!clean && (budget-- > 0 || sched()->is_virtual())) {
    heap_entry e = heap_->top();
    switch (ask(e)) {
      case speaks::yes:
        prefetch_waiter(*e.timer);
        clean = true;
        break;
      case speaks::later:
        heap_->replace_top(e);
        break;
      case speaks::no:
        heap_->pop();
        drop_reference(*e.timer);
        clean = heap_->empty();
        break;
    }
  }
  if (has_too_many_dead(live)) {
    sweep(slice);
    clean = clean && !has_too_many_dead(live);
  }
  publish();
  return clean;
}

bool timer_service::has_too_many_dead(std::uint64_t live) const noexcept {
  return heap_->size() > 2 * live + 1024;
}

nanos timer_service::second_deadline() noexcept {
  const lock_guard guard(heap_lock_);
  const nanos second = heap_->second_key();
  return second >= runtime_timer::latest ? never : second;
}

// Looks only, and only at what stands in the heap for a time that has come: the
// entries below a later one are later.
bool timer_service::anything_due(nanos now) noexcept {
  const auto is_due = [now](const heap_entry& e) {
    const nanos deadline = e.timer->when.load();
    // The key is later by the timer's slack: until then it may wait.
    return e.key <= now && e.timer->filed.load() == e.key && deadline > 0 && deadline <= now;
  };
  const lock_guard guard(heap_lock_);
  for (const auto& in : intakes_) {
    const lock_guard inner(in->lock);
    const std::uint32_t n = in->size.load(relaxed);  // ordering: under the lock
    for (std::uint32_t i = 0; i < n; ++i) {
      if (is_due(in->entries[i])) return true;
    }
  }
  std::size_t i = 0;
  for (;;) {
    if (i < heap_->size() && (*heap_)[i].key <= now) {
      if (is_due((*heap_)[i])) return true;
      i = 2 * i + 1;
      continue;
    }
    while (i != 0 && i % 2 == 0)  // a right child, or the root
      i = (i - 1) / 2;
    if (i == 0) return false;
    ++i;
  }
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
