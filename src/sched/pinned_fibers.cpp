#include "sched/pinned_fibers.hpp"

#include <utility>

namespace VIGIL_DETAIL {

void pinned_fibers::add() noexcept {
  if (lone_) return;
  ++count_;
  last_wait_ = wait::bounded;
}

void pinned_fibers::remove(fiber& f) noexcept {
  if (lone_) return;
  --count_;
  if (std::exchange(f.waits.open, false)) --open_;
  last_wait_ = wait::bounded;  // which of them the last wait was of is not known
}

pinned_fibers::wait pinned_fibers::wait_of(fiber& f, bool parks) noexcept {
  const bool waits_timed = std::exchange(f.waits.timed, false);
  if (!parks || f.waits.cancellable || waits_timed) return wait::bounded;
  // ordering: its own worker reads them.
  if (f.present.until.load(order::relaxed) != never) return wait::bounded;
  // ordering: as above.
  return f.present.reason.load(order::relaxed) == wait_reason::join ? wait::join : wait::open;
}

void pinned_fibers::note_wait(fiber& f, bool parks) noexcept {
  if (f.pinned == nullptr) return;
  last_wait_ = wait_of(f, parks);
  const bool is_open = last_wait_ != wait::bounded;
  if (is_open == f.waits.open) return;
  f.waits.open = is_open;
  open_ += is_open ? 1u : ~0u;
}

}  // namespace VIGIL_DETAIL
