// How stacks that are warm lose their memory: the pool's half of stack_decay.
#include "core/machine/stack_pool.hpp"

#include <algorithm>
#include <iterator>

namespace VIGIL_DETAIL {

bool stack_pool::many_are_idle() const noexcept {
  return free_touched_ > std::max(touched_floor, taken_);
}

// Whether the idle stacks may all keep their memory. Those that a burst does not use, of
// other sizes or in other slabs, must not cost it a slab each time: the floor, which is
// kept without a burst as well, is for them.
bool stack_pool::is_warm() const noexcept {
  const std::size_t allowed = decay_.allowed(taken_);
  return allowed != 0 && free_touched_ <= allowed + std::min(allowed, touched_floor);
}

// Called when something stays only because it is warm.
void stack_pool::plan_step() noexcept {
  // ordering: written only under the pool's lock. A worker that does not see it yet
  // sleeps without it; the one that released the stack sees it before its own sleep.
  if (next_step_.load(std::memory_order_relaxed) == never) {
    // ordering: as above
    next_step_.store(decay_.next_step(), std::memory_order_relaxed);
  }
}

// Gives back the memory of one slab, the highest that has some to spare. False if nothing
// is left that may not stay.
bool stack_pool::cool_one() noexcept {
  if (is_warm()) return false;
  for (class_state& of : classes_) {
    if (of.empty_slabs > 1 && unmap_highest(of)) return true;
  }
  while (many_are_idle() && cooled_down_to_ > 0) {
    const unsigned n = --cooled_down_to_;
    if (give_back_free(chunk_at(n / chunk_slabs).slabs[n % chunk_slabs])) return true;
  }
  return false;
}

// The same, as a part of a step. False if the step is not over.
bool stack_pool::decay_one() noexcept {
  if (cool_one()) return false;
  // If no stack may stay warm, no further step is needed.
  const bool has_warm =
      decay_.allowed(taken_) != 0 &&
      (many_are_idle() ||
       std::any_of(std::begin(classes_), std::end(classes_), [](const class_state& of) noexcept {
         return of.empty_slabs > 1;
       }));
  // ordering: as in plan_step().
  next_step_.store(has_warm ? decay_.next_step() : never, std::memory_order_relaxed);
  return true;
}

bool stack_pool::decay() noexcept {
  // ordering: a hint, looked at again under the lock.
  const nanos next = next_step_.load(std::memory_order_relaxed);
  if (next == never) return true;
  const nanos time = clock();
  if (time < next) return true;
  const std::lock_guard guard(lock_);
  if (decay_.note(time, taken_)) cooled_down_to_ = all_slabs();
  return decay_one();
}

nanos stack_pool::next_step() const noexcept {
  // ordering: as in plan_step().
  return next_step_.load(std::memory_order_relaxed);
}

void stack_pool::begin_warm(std::size_t limit) noexcept {
  const std::lock_guard guard(lock_);
  if (decay_.limit() == 0) decay_.forget(clock(), taken_);
  decay_.set_limit(decay_.limit() + limit);
}

// In steps, so that other runtimes get at the pool meanwhile.
void stack_pool::end_warm(std::size_t limit) noexcept {
  {
    const std::lock_guard guard(lock_);
    decay_.set_limit(decay_.limit() - limit);
    decay_.forget(clock(), taken_);
    cooled_down_to_ = all_slabs();
  }
  for (bool is_over = false; !is_over;) {
    const std::lock_guard guard(lock_);
    is_over = decay_one();
  }
}

void stack_pool::set_step(nanos length) noexcept {
  const std::lock_guard guard(lock_);
  decay_.step = length;
}

stack_pool::touch_counts stack_pool::counts() noexcept {
  const std::lock_guard guard(lock_);
  return {free_touched_, first_touches_};
}

}  // namespace VIGIL_DETAIL
