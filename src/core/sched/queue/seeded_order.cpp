#include "core/sched/queue/seeded_order.hpp"

#include "core/sched/queue/injection_queue.hpp"
#include "core/sched/wait/timer_seam.hpp"

#include <cstdint>
#include <new>

namespace VIGIL_DETAIL {

bool seeded_order::has_room() noexcept {
  if (bag_.size() < bag_.capacity()) return true;
  try {
    bag_.reserve(2 * bag_.capacity());
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool seeded_order::add(fiber& f) noexcept {
  if (!has_room()) return false;
  bag_.push_back(&f);
  return true;
}

void seeded_order::take_in(injection_queue& injected, injection_queue& pinned) noexcept {
  const auto fill = [this](auto& from) {
    while (has_room()) {
      fiber* const f = from.pop();
      if (f == nullptr) return;
      bag_.push_back(f);
    }
  };
  fill(injected);
  fill(pinned);
}

void seeded_order::add_yielded(fiber& f) noexcept {
  if (yielded_.empty()) before_yielded_ = bag_.size();
  yielded_.push_back(f);
}

void seeded_order::take_back_yielded() noexcept {
  while (has_room()) {
    fiber* const f = yielded_.pop_front();
    if (f == nullptr) return;
    bag_.push_back(f);
  }
}

fiber* seeded_order::draw(timer_seam& timers) noexcept {
  const bool callbacks = timers.has_callbacks();
  if (!yielded_.empty() && (before_yielded_ == 0 || (bag_.empty() && !callbacks))) {
    take_back_yielded();
  }
  if (before_yielded_ != 0) --before_yielded_;
  const auto fibers = static_cast<std::uint32_t>(bag_.size());
  if (fibers == 0 && !callbacks) return nullptr;
  const std::uint32_t choices = fibers + (callbacks ? 1 : 0);
  std::uint32_t drawn = choices == 1 ? 0 : dice_.below(choices);
  if (drawn == fibers) {
    if (fiber* const f = timers.take_runner()) return f;
    if (fibers == 0) return nullptr;
    drawn = 0;  // no stack for a runner: the callbacks wait
  }
  fiber* const f = bag_[drawn];
  bag_[drawn] = bag_.back();
  // A search for stuck fibers would find it, and be less certain. It is volatile, or the
  // store is dead for the compiler.
  const_cast<fiber* volatile&>(bag_.back()) = nullptr;
  bag_.pop_back();
  return f;
}

}  // namespace VIGIL_DETAIL
