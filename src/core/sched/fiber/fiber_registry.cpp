#include "core/sched/fiber/fiber_registry.hpp"

#include <vigil/error.hpp>

#include <string>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

// Adds n unless the sum would be more than the limit. A caller that is refused never
// counts, so no other is refused because of it.
bool add_within(atomic<std::size_t>& count, std::size_t n, std::size_t limit) noexcept {
  std::size_t seen = count.load();
  while (n <= limit && seen <= limit - n) {
    if (count.compare_exchange_weak(seen, seen + n)) return true;
  }
  return false;
}

}  // namespace

void fiber_registry::add(fiber& f) noexcept {
  shard& s = shard_of(f);
  const lock_guard guard(s.lock);
  s.fibers.push_back(f);
}

void fiber_registry::remove(fiber& f) noexcept {
  shard& s = shard_of(f);
  const lock_guard guard(s.lock);
  s.fibers.remove(f);
}

void fiber_registry::count_alive(int change) noexcept {
  if (change > 0) {
    alive_.fetch_add(one_more);
  } else {
    alive_.fetch_sub(1);
    main_.something_ended();
  }
}

void fiber_registry::count_system(int change) noexcept {
  if (change > 0) {
    system_.fetch_add(1);
  } else {
    system_.fetch_sub(1);
    main_.something_ended();
  }
}

void fiber_registry::take_limited(fiber_role role, std::size_t stack_size) {
  const bool is_limited = max_fibers_ != 0 && counts(role);
  if (is_limited && !add_within(limited_, 1, max_fibers_)) {
    throw limit_reached(("vigil: options::max_fibers (" + std::to_string(max_fibers_) +
                         ") are alive; wait for some to end, or raise the limit")
                            .c_str());
  }
  if (max_stack_bytes_ != 0 && !add_within(stack_bytes_, stack_size, max_stack_bytes_)) {
    if (is_limited) limited_.fetch_sub(1);
    throw limit_reached(("vigil: options::max_stack_bytes (" + std::to_string(max_stack_bytes_) +
                         ") would be passed; wait for fibers to end, or raise the limit")
                            .c_str());
  }
}

void fiber_registry::give_limited(fiber_role role, std::size_t stack_size) noexcept {
  if (max_stack_bytes_ != 0) stack_bytes_.fetch_sub(stack_size);
  if (max_fibers_ != 0 && counts(role)) limited_.fetch_sub(1);
}

std::uint64_t fiber_registry::take_id(number_block* own) noexcept {
  // ordering: only uniqueness matters.
  if (own == nullptr) return next_id_.fetch_add(1, order::relaxed);
  if (own->next == own->last) {
    own->next = next_id_.fetch_add(id_block_, order::relaxed);  // ordering: as above
    own->last = own->next + id_block_;
  }
  return own->next++;
}

}  // namespace VIGIL_DETAIL
