#include "core/timer/callback_queue.hpp"

#include <utility>

namespace VIGIL_DETAIL {

void callback_queue::push_due(timer_record** due, std::size_t n, nanos now) noexcept {
  add(due, n, now);
  board_.callbacks_came_due();
}

void callback_queue::push_soon(timer_record& t, nanos now) noexcept {
  timer_record* due = &t;
  add(&due, 1, now);
  board_.callbacks_added();
}

void callback_queue::add(timer_record** due, std::size_t n, nanos now) noexcept {
  std::size_t queued_before = 0;
  {
    const lock_guard guard(lock_);
    for (std::size_t i = 0; i < n; ++i) {
      timer_record& t = *due[i];
      if (t.queued) {
        if (t.due_until < now) t.due_until = now;
        due[queued_before++] = &t;
        continue;
      }
      t.queued = true;
      t.due_until = now;
      queue_.push_back(t);
      __builtin_prefetch(&t.made_at);  // for the run
    }
    publish();
  }
  for (std::size_t i = 0; i < queued_before; ++i)
    release_record(*due[i]);
}

void callback_queue::push_posted(timer_record& t) noexcept {
  {
    const lock_guard guard(lock_);
    t.posted_as = ++posted_;
    queue_.push_back(t);
    publish();
  }
  board_.callbacks_added();
}

// Puts them at the head of the queue, except those deferred by a deferred callback: they
// go to the tail, as if posted, since a chain of them would keep all others waiting.
void callback_queue::push_deferred(fiber& f) noexcept {
  timer_record* newest = std::exchange(f.deferred, nullptr);
  const bool to_tail = newest->deferred_by_deferred;
  record_chain all;  // the oldest first
  while (newest != nullptr) {
    timer_record& t = *newest;
    newest = t.next;
    all.push_front(t);
  }
  {
    const lock_guard guard(lock_);
    if (to_tail) {
      for (timer_record* t = all.front(); t != nullptr; t = t->next)
        t->posted_as = ++posted_;
      queue_.splice_back(all);
    } else {
      all.splice_back(queue_);
      queue_.splice_back(all);
    }
    publish();
  }
  board_.callbacks_added();
}

// Moves away what must not start, up to the first handler.
void callback_queue::set_aside() noexcept {
  while (queue_.front() != nullptr && !queue_.front()->is_handler)
    aside_.push_back(*queue_.pop_front());
}

// ordering (callbacks_waiting): a count that seems too high for a moment costs a look; it
// grows under the lock, after this store.
bool callback_queue::has_one(those may) noexcept {
  if (may == those::none || board_.callbacks_waiting.load() == 0) return false;
  if (may == those::all) return true;
  const lock_guard guard(lock_);
  set_aside();
  board_.callbacks_waiting.store(queue_.size(), order::relaxed);  // ordering: as above
  return !queue_.empty();
}

timer_record* callback_queue::pop(those may, nanos& due_until, round& of) noexcept {
  if (board_.callbacks_waiting.load() == 0) return nullptr;
  const lock_guard guard(lock_);
  if (of == new_round) of = posted_;
  if (may == those::handlers) set_aside();
  timer_record* t = nullptr;
  if (!queue_.empty() && queue_.front()->posted_as <= of) t = pop_front(due_until);
  board_.callbacks_waiting.store(queue_.size(), order::relaxed);  // ordering: as above
  return t;
}

timer_record* callback_queue::pop_to_discard() noexcept {
  const lock_guard guard(lock_);
  queue_.splice_back(aside_);
  nanos ignored = 0;
  timer_record* const t = queue_.empty() ? nullptr : pop_front(ignored);
  publish();
  return t;
}

timer_record* callback_queue::pop_front(nanos& due_until) noexcept {
  timer_record* const t = queue_.pop_front();
  t->queued = false;
  due_until = t->due_until;
  // Fetches what the next run needs: its claim word, its function, its place.
  if (const timer_record* const next = queue_.front()) {
    __builtin_prefetch(next, 1);
    __builtin_prefetch(&next->call, 1);
    __builtin_prefetch(&next->made_at);
  }
  return t;
}

}  // namespace VIGIL_DETAIL
