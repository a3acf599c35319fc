#include "core/base/spinlock.hpp"
#include "core/sched/wait/waiter.hpp"

#include <vigil/detail/wait_limit.hpp>
#include <vigil/io/detail/movable_deadline.hpp>

#include <utility>

#include <boost/asio/error.hpp>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;
using vigil::detail::fiber;  // not the handle

struct movable_deadline::part {
  spinlock lock{lock_rank::sync};
  std::int64_t deadline VIGIL_GUARDED_BY(lock) = no_deadline;
  std::int64_t waited_to VIGIL_GUARDED_BY(lock) = no_deadline;
  bool closed VIGIL_GUARDED_BY(lock) = false;
  bool ended VIGIL_GUARDED_BY(lock) = false;  // by end_by(), for the present wait
  limited_wait* waiting VIGIL_GUARDED_BY(lock) = nullptr;

  bool has_passed() const VIGIL_REQUIRES(lock) { return vigil::detail::until(deadline).is_over(); }

  waiter* look_again() noexcept VIGIL_REQUIRES(lock) {
    return waiting != nullptr ? waiting->look_again() : nullptr;
  }
};

namespace {

// Called without the lock.
void deliver(waiter* claimed) noexcept {
  if (claimed != nullptr) claimed->deliver();
}

}  // namespace

movable_deadline::movable_deadline(time_of name) : part_(std::make_unique<part>()), name_(name) {}

movable_deadline::~movable_deadline() = default;

void movable_deadline::set(std::int64_t deadline) noexcept {
  waiter* claimed = nullptr;
  {
    const lock_guard guard(part_->lock);
    part_->deadline = deadline;
    // A later deadline is noticed when the earlier one has come.
    if (deadline < part_->waited_to) claimed = part_->look_again();
  }
  deliver(claimed);
}

std::int64_t movable_deadline::value() const noexcept {
  const lock_guard guard(part_->lock);
  return part_->deadline;
}

void movable_deadline::close() noexcept {
  waiter* claimed = nullptr;
  {
    const lock_guard guard(part_->lock);
    part_->closed = true;
    claimed = part_->look_again();
  }
  deliver(claimed);
}

waiter* movable_deadline::claim(const timeout_list::entry& expired) noexcept {
  const lock_guard guard(part_->lock);
  if (part_->waiting == nullptr || expired.is_linked()) return nullptr;
  part_->ended = true;
  return part_->look_again();
}

// Marks both before either fiber runs: the first may end the other's wait of Asio's, and
// that one would not be waiting at this moment.
void movable_deadline::end_both(movable_deadline& read,
                                movable_deadline& write,
                                const timeout_list::entry& expired) noexcept {
  waiter* const reader = read.claim(expired);
  waiter* const writer = write.claim(expired);
  deliver(reader);
  deliver(writer);
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

std::int64_t movable_deadline::begin_wait(limited_wait& w) noexcept {
  const lock_guard guard(part_->lock);
  part_->waiting = &w;
  part_->waited_to = part_->closed || part_->ended ? std::int64_t{0} : part_->deadline;
  return part_->waited_to;
}

boost::system::error_code movable_deadline::end_wait(bool was_cut) noexcept {
  const lock_guard guard(part_->lock);
  part_->waiting = nullptr;
  part_->waited_to = no_deadline;
  const bool ended = std::exchange(part_->ended, false);
  if (!was_cut) return {};
  const bool by_list = ended && !part_->has_passed();
  if (part_->closed) return boost::asio::error::operation_aborted;
  return timed_out_by(by_list ? time_of::idle : name_);
}

}  // namespace VIGIL_IO_DETAIL
