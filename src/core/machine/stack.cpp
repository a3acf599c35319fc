#include "core/machine/stack.hpp"

#include "core/base/assert.hpp"
#include "core/base/clock_source.hpp"
#include "core/machine/sanitizer.hpp"
#include "core/machine/slab_memory.hpp"
#include "core/machine/slab_table.hpp"
#include "core/machine/stack_error.hpp"
#include "core/machine/stack_pool.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

namespace VIGIL_DETAIL {
namespace {

[[noreturn]] void refuse_size(std::size_t usable) {
  const bool is_small = usable < min_stack_size;
  throw std::invalid_argument(
      "vigil: a fiber's stack of " + std::to_string(usable) + " bytes is too " +
      (is_small ? "small: the least is " + std::to_string(min_stack_size >> 10) + " KiB"
                : "big: the most is " + std::to_string(max_stack_size >> 20) + " MiB") +
      " (fiber_options::stack_size)");
}

// Whether there is a decay_attendant with a step to wake for. It guards nothing: a worker
// that misses its end wakes for nothing, or leaves the step to the next one that sleeps.
std::atomic<bool> decay_is_attended{false};

bool is_default_class(std::size_t usable) noexcept {
  return usable <= default_stack_size && usable > default_stack_size / 2;
}

// Memory that one fiber left poisoned must not be a red zone of the next.
void unpoison([[maybe_unused]] const stack& s) noexcept {
#if VIGIL_ASAN
  __asan_unpoison_memory_region(s.bottom, s.size());
#endif
}

// Marks the stack as idle: from here on no walk sees it.
void retire(const stack& s) noexcept {
  VIGIL_CHECK(mark_idle(s), "a stack is released twice");
  unpoison(s);
}

}  // namespace

stack allocate_stack(std::size_t usable) {
  if (usable < min_stack_size || usable > max_stack_size) refuse_size(usable);
  stack_failure failure;
  const stack taken = process_stacks.take(size_class_of(usable), failure);
  if (!taken) throw_stack_error(usable, failure);
  mark_in_use(taken);
  return taken;
}

void release_stack(stack released) noexcept {
  retire(released);
  process_stacks.give(&released, 1);
}

void trim_stacks() noexcept {
  process_stacks.trim();
}

warm_stacks::warm_stacks(std::size_t most) noexcept
    : most_(std::min<std::size_t>(most, max_chunks * chunk_slabs * slab_places)) {
  if (most_ != 0) process_stacks.begin_warm(most_);
}

warm_stacks::~warm_stacks() {
  if (most_ != 0) process_stacks.end_warm(most_);
}

bool decay_stacks() noexcept {
  return process_stacks.decay();
}

bool decay_wants_attendant() noexcept {
  // ordering: see decay_is_attended.
  return process_stacks.next_step() != never && !decay_is_attended.load(std::memory_order_relaxed);
}

decay_attendant::decay_attendant() noexcept : when_(process_stacks.next_step()) {
  // ordering: see decay_is_attended.
  if (when_ != never && decay_is_attended.exchange(true, std::memory_order_relaxed)) when_ = never;
}

decay_attendant::~decay_attendant() {
  // ordering: see decay_is_attended.
  if (when_ != never) decay_is_attended.store(false, std::memory_order_relaxed);
}

stack stack_cache::take(std::size_t usable) {
  if (!is_default_class(usable)) return allocate_stack(usable);
  if (count_ == 0 && !refill()) return allocate_stack(usable);
  const stack taken = hot_[--count_];
  mark_in_use(taken);
  return taken;
}

void stack_cache::give(stack released) noexcept {
  retire(released);
  if (released.size() != default_stack_size) {
    process_stacks.give(&released, 1);
    return;
  }
  if (count_ == capacity) hand_back(batch);
  hot_[count_++] = released;
}

void stack_cache::flush() noexcept {
  while (count_ != 0)
    hand_back(std::min(count_, batch));
}

[[gnu::noinline]] bool stack_cache::refill() noexcept {
  count_ = process_stacks.take_hot(hot_, batch);
  return count_ != 0;
}

// Hands back the coldest, at most a batch.
[[gnu::noinline]] void stack_cache::hand_back(std::size_t leaving) noexcept {
  process_stacks.give(hot_, leaving);
  std::copy(hot_ + leaving, hot_ + count_, hot_);
  count_ -= leaving;
}

stack_stats read_stack_stats() noexcept {
  stack_stats out;
  const slab_hold hold;
  for_each_stack_in_use(
      [](const stack&, void* in_use) noexcept { ++*static_cast<std::size_t*>(in_use); },
      &out.in_use);
  for_each_slab(
      [](const std::byte*, std::size_t bytes, void* sum) noexcept {
        auto& sums = *static_cast<stack_stats*>(sum);
        ++sums.slabs;
        sums.mapped_bytes += bytes;
      },
      &out);
  return out;
}

}  // namespace VIGIL_DETAIL
