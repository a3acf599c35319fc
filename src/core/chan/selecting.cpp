#include "core/chan/selecting.hpp"

#include "core/chan/channel_core.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <vigil/detail/typed_cases.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

// For a thread that runs no fiber.
random& thread_dice() noexcept {
  thread_local random dice(reinterpret_cast<std::uintptr_t>(&dice) ^
                           static_cast<std::uint64_t>(monotonic_now()));
  return dice;
}

random& dice_of_caller() noexcept {
  worker* const w = current_worker();
  if (w == nullptr) return thread_dice();
  return w->dice();
}

}  // namespace

bool is_near(const select_case& c) noexcept {
  if (c.type != select_case::kind::waits || c.object == nullptr) return false;
  if (c.table != &recv_case_table) return true;
  const timed_source* const source = static_cast<const channel_core*>(c.object)->source;
  return source == nullptr || !source->is_far();
}

kept_cases::kept_cases(select_case* const* cases, std::size_t count) {
  times_.reserve(count);
  channels_.reserve(count);  // nothing throws once a time has been changed
  for (std::size_t i = 0; i < count; ++i) {
    select_case& c = *cases[i];
    if (c.type == select_case::kind::waits) {
      channels_.push_back(keep_channel(c));
    } else if (c.type == select_case::kind::timed) {
      if (c.limit.cancelled_by != nullptr) retain(c.limit.cancelled_by);
      times_.push_back({&c, c.limit});
      if (c.limit.is_relative() && c.limit.nanoseconds > 0) c.limit = c.limit.absolute();
    }
  }
}

kept_cases::~kept_cases() {
  for (const kept_time& t : times_) {
    t.of->limit = t.given;
    if (t.given.cancelled_by != nullptr) release(t.given.cancelled_by);
  }
}

selecting::selecting(select_case* const* cases, std::size_t count, choice mode)
    : cases_(cases), mode_(mode) {
  order_.reserve(count);
  locks_.reserve(count);
  sort_out(count);
  shuffle();
}

selecting::~selecting() {
  for (const std::uint32_t i : begun_)
    if (const auto leave = cases_[i]->table->leave) leave(*cases_[i]);
}

void selecting::sort_out(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    select_case& c = *cases_[i];
    if (c.type == select_case::kind::waits) {
      if (c.object == nullptr) continue;
      order_.push_back(static_cast<std::uint32_t>(i));
    } else if (c.type == select_case::kind::otherwise) {
      if (otherwise_ != none) {
        throw std::invalid_argument(
            "vigil::select: two otherwise cases; only one can be taken when nothing is ready");
      }
      otherwise_ = i;
    } else {
      if (timed_ == none) {
        timed_ = i;
        limit_ = c.limit;
      } else {
        const nanos before = limit_.as_deadline();
        const nanos at = c.limit.as_deadline();
        if (at < before) timed_ = i;
        limit_ = detail::until(std::min(at, before));
      }
    }
  }
}

void selecting::shuffle() noexcept {
  if (mode_ == choice::ordered || order_.size() < 2) return;
  random& dice = dice_of_caller();
  for (auto n = static_cast<std::uint32_t>(order_.size()); n > 1; --n)
    std::swap(order_[n - 1], order_[dice.below(n)]);
}

std::size_t selecting::look_at_each() noexcept {
  for (const std::uint32_t i : order_) {
    // Only the first of ordered cases may be taken here: any other must be ready while
    // those before it are not, which only a look at one instant can tell.
    if (mode_ == choice::ordered && i != order_[0]) return none;
    select_case& c = *cases_[i];
    if (is_near(c) && c.table->look(c)) return i;
  }
  return none;
}

// Caller: holds all locks.
std::size_t selecting::look_at_all(wake_list& claimed) noexcept {
  for (const std::uint32_t i : order_) {
    if (cases_[i]->table->poll(*cases_[i], claimed)) return i;
  }
  return none;
}

void selecting::lock_all() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  locks_.clear();
  for (const std::uint32_t i : order_)
    locks_.push_back(i);
  if (locks_.size() > 1) {
    std::sort(locks_.begin(), locks_.end(), [this](std::uint32_t a, std::uint32_t b) {
      return lock_of(a) < lock_of(b);
    });
  }
  if (locks_.empty()) return;
  const case_lock first = lock_of(locks_[0]);
  first.lock();
  for (case_lock last = first; const std::uint32_t i : locks_) {
    const case_lock lock = lock_of(i);
    if (lock == last) continue;
    lock.lock_after(last);
    last = lock;
  }
}

void selecting::unlock_all() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  for (std::size_t n = locks_.size(); n-- > 0;) {
    if (n == 0 || !(lock_of(locks_[n]) == lock_of(locks_[n - 1]))) lock_of(locks_[n]).unlock();
  }
}

// Queues all cases, with one ticket, and returns none. Or returns the case that became
// ready meanwhile, which is taken then; nothing is queued then, nor if this throws.
// Caller: holds all locks, so no thread sees the places before they are whole.
std::size_t selecting::enqueue_all(const case_owner& owner, wake_list& claimed) {
  const auto take_back = [&](std::uint32_t queued) noexcept {
    // A case that leaves may let the next in its queue have its turn, which must not be
    // one of these: no claim of a ticket that was never open succeeds.
    for (std::uint32_t n = 0; n < queued; ++n)
      detail::place_of(*cases_[order_[n]]) = open_wait{&owner.own_waiter};
    for (std::uint32_t n = 0; n < queued; ++n)
      cases_[order_[n]]->table->retract(*cases_[order_[n]], claimed);
  };
  for (std::uint32_t n = 0; n < order_.size(); ++n) {
    try {
      if (cases_[order_[n]]->table->enqueue(*cases_[order_[n]])) continue;
    } catch (...) {
      take_back(n);
      throw;
    }
    take_back(n);
    return order_[n];
  }
  ticket_ = owner.own_waiter.open(owner.stoppable);
  const open_wait all{&owner.own_waiter, ticket_};
  for (const std::uint32_t i : order_)
    detail::place_of(*cases_[i]) = all;
  return none;
}

bool selecting::has_prepared_cases() const noexcept {
  return std::any_of(order_.begin(), order_.end(), [this](std::uint32_t i) {
    return cases_[i]->table->begin != nullptr;
  });
}

void selecting::begin_round() {
  is_over_ = otherwise_ != none || limit_.is_over();  // reads a clock: without the locks
  const bool is_first = begun_.empty();
  round_ends_ = never;
  for (const std::uint32_t i : order_) {
    select_case& c = *cases_[i];
    if (!is_over_ && kept_.size() < order_.size()) kept_.push_back(keep_channel(c));
    if (c.table->begin == nullptr) continue;
    if (is_first) begun_.reserve(order_.size());
    round_ends_ = std::min(round_ends_, c.table->begin(c, !is_over_));
    if (is_first) begun_.push_back(i);
  }
  if (!begun_.empty()) limit_ = limit_.absolute();  // the same time for all rounds
}

// Whether case i, which is ready, is taken now: it may have been a false alarm.
bool selecting::is_taken(std::size_t i) noexcept {
  const auto take = cases_[i]->table->take;
  return take == nullptr || take(*cases_[i]);
}

std::size_t selecting::take_or_queue(const case_owner& owner) {
  wake_list claimed;
  lock_all();
  std::size_t ready = look_at_all(claimed);
  if (ready != none) {
    unlock_all();
    claimed.deliver(run_order::next);
    return is_taken(ready) ? ready : again;
  }
  if (is_over_) {
    unlock_all();
    return otherwise_ != none ? otherwise_ : timed_;
  }
  if (owner.may_not_wait) {
    unlock_all();
    return refused;
  }
  try {
    ready = enqueue_all(owner, claimed);
  } catch (...) {
    unlock_all();
    claimed.deliver();
    if (current_fiber() != nullptr) current_scheduler()->board.cover_owed();
    throw;
  }
  unlock_all();
  claimed.deliver();
  if (ready == none) return none;
  return is_taken(ready) ? ready : again;
}

std::size_t selecting::take_back() noexcept {
  std::size_t winner = none;
  for (const std::uint32_t i : order_) {
    if (detail::take_back(*cases_[i])) winner = i;
  }
  if (winner == none) return none;
  // After a false alarm a case before this one may be ready as well by now.
  if (mode_ == choice::ordered && cases_[winner]->table->take != nullptr) return again;
  return is_taken(winner) ? winner : again;
}

}  // namespace VIGIL_DETAIL
