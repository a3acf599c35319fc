#include "base/spinlock.hpp"
#include "io/operation.hpp"

#include <vigil/detail/wait_limit.hpp>
#include <vigil/io/detail/movable_deadline.hpp>

#include <utility>

#include <boost/asio/error.hpp>

namespace vigil::io::inline VIGIL_ABI::detail {

using vigil::detail::lock_guard;

struct movable_deadline::part {
  vigil::detail::spinlock lock{vigil::detail::lock_rank::sync};
  std::int64_t deadline VIGIL_GUARDED_BY(lock) = vigil::detail::no_deadline;
  std::int64_t waited_to VIGIL_GUARDED_BY(lock) = vigil::detail::no_deadline;
  bool closed VIGIL_GUARDED_BY(lock) = false;
  bool ended VIGIL_GUARDED_BY(lock) = false;  // by end_wait(), for the present wait
  operation_ref waiting VIGIL_GUARDED_BY(lock);

  bool has_passed() const VIGIL_REQUIRES(lock) { return vigil::detail::until(deadline).is_over(); }
};

namespace {

// Called without the lock.
void tell(const operation_ref& waiting) noexcept {
  if (waiting) look_again(*waiting);
}

}  // namespace

movable_deadline::movable_deadline(time_of name) : part_(std::make_unique<part>()), name_(name) {}

movable_deadline::~movable_deadline() = default;

void movable_deadline::set(std::int64_t deadline) noexcept {
  operation_ref waiting;
  {
    const lock_guard guard(part_->lock);
    part_->deadline = deadline;
    // A later deadline is noticed when the earlier one has come.
    if (deadline < part_->waited_to) waiting = part_->waiting;
  }
  tell(waiting);
}

std::int64_t movable_deadline::value() const noexcept {
  const lock_guard guard(part_->lock);
  return part_->deadline;
}

void movable_deadline::close() noexcept {
  operation_ref waiting;
  {
    const lock_guard guard(part_->lock);
    part_->closed = true;
    waiting = part_->waiting;
  }
  tell(waiting);
}

void movable_deadline::end_wait(const timeout_list::entry& expired) noexcept {
  operation_ref waiting;
  {
    const lock_guard guard(part_->lock);
    if (!part_->waiting || expired.is_linked()) return;
    part_->ended = true;
    waiting = part_->waiting;
  }
  tell(waiting);
}

bool movable_deadline::is_over() const noexcept {
  const lock_guard guard(part_->lock);
  return part_->ended || part_->has_passed();
}

bool movable_deadline::is_closed() const noexcept {
  const lock_guard guard(part_->lock);
  return part_->closed;
}

boost::system::error_code movable_deadline::error() const noexcept {
  const lock_guard guard(part_->lock);
  if (part_->closed) return boost::asio::error::bad_descriptor;
  if (part_->has_passed()) return timed_out_by(name_);
  if (part_->ended) return timed_out_by(time_of::idle);
  return {};
}

std::int64_t movable_deadline::wait_to(operation& o) noexcept {
  const lock_guard guard(part_->lock);
  if (!part_->waiting) part_->waiting = operation_ref::to(o);
  part_->waited_to = part_->closed || part_->ended ? std::int64_t{0} : part_->deadline;
  return part_->waited_to;
}

boost::system::error_code movable_deadline::waited() noexcept {
  operation_ref was;  // released after the lock
  const lock_guard guard(part_->lock);
  std::swap(was, part_->waiting);
  part_->waited_to = vigil::detail::no_deadline;
  const bool by_list = std::exchange(part_->ended, false) && !part_->has_passed();
  if (part_->closed) return boost::asio::error::operation_aborted;
  return timed_out_by(by_list ? time_of::idle : name_);
}

}  // namespace vigil::io::inline VIGIL_ABI::detail
