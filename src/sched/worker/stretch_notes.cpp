#include "sched/worker/stretch_notes.hpp"

#include "sched/worker/slow_fiber.hpp"

namespace VIGIL_DETAIL {
namespace {

left_by way_of(after_switch step) noexcept {
  switch (step) {
    case after_switch::nothing:
      break;
    case after_switch::park:
    case after_switch::park_timer_fiber:
      return left_by::park;
    case after_switch::yield:
    case after_switch::timer_fiber_turn:
      return left_by::yield;
    case after_switch::end:
      return left_by::end;
  }
  return left_by::none;
}

departure how_left(const fiber& f, after_switch step) noexcept {
  const left_by how = way_of(step);
  if (how != left_by::park) return {how};
  // ordering: its own worker reads it.
  return {how, static_cast<std::uint8_t>(f.present.reason.load(order::relaxed))};
}

}  // namespace

void stretch_notes::set(slow_fibers* slow) noexcept {
  slow_ = slow;
  wanted_ = slow != nullptr || log_.is_on();
}

void stretch_notes::note(unsigned worker,
                         fiber* now,
                         const fiber* left,
                         after_switch step) noexcept {
  const departure how = left == nullptr ? departure{} : how_left(*left, step);
  if (now != nullptr) {
    if (slow_ != nullptr) slow_->begins(worker, *now);
    if (log_.is_on()) log_.run(now->identity, now->role == fiber_role::runner, how);
  } else {
    if (slow_ != nullptr) slow_->ends(worker);
    if (log_.is_on()) log_.leave(left->identity, how);
  }
}

}  // namespace VIGIL_DETAIL
