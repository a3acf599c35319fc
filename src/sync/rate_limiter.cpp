// rate_limiter: the level of a bucket, in whole numbers.
//
// With n tokens in d nanoseconds a token is d units and a nanosecond brings n. So the
// only time that is ever rounded is the instant of a reservation, which is rounded up.
// The level may be negative: tokens that are reserved and have not come yet.
#include "sched/turn_budget.hpp"
#include "sync/wait_queue.hpp"

#include <vigil/rate_limiter.hpp>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace VIGIL_PUBLIC {
namespace {

using detail::nanos;
using detail::never;

__extension__ using wide = __int128;

// No level is lower, since no reservation is later than the clock counts. A product of
// two 63-bit numbers is less than the same amount above zero. So the difference of any
// two such values is a number of 127 bits.
constexpr wide least_level = -(static_cast<wide>(1) << 126);

void check_tokens(std::int64_t n) {
  detail::refuse_negative("vigil::rate_limiter: the number of tokens", n);
}

void check_burst(std::int64_t n) {
  detail::refuse_negative("vigil::rate_limiter: the burst", n);
}

nanos of(clock::time_point t) noexcept {
  return t.time_since_epoch().count();
}

clock::time_point at(nanos t) noexcept {
  return clock::time_point(clock::duration(t));
}

}  // namespace

rate rate::checked(std::int64_t n, std::int64_t nanoseconds) {
  if (n >= 0 && nanoseconds > 0) return {n, nanoseconds};
  throw std::invalid_argument(
      "vigil::rate: so many tokens, 0 or more, in a duration above zero; for no limit use "
      "rate::unlimited()");
}

rate_limiter::rate_limiter(const rate& r, std::int64_t burst, const site& from)
    : mutex_(from),
      rate_(r),
      burst_(burst),
      level_(0),
      since_(of(clock::now())),
      last_event_(since_),
      for_change_(from) {
  check_burst(burst);
  level_ = full();
}

// Brings the level up to `now`; one before the last changes nothing. Under the mutex.
void rate_limiter::advance(std::int64_t now) noexcept {
  if (now <= since_) return;
  // No overflow: see least_level.
  const wide brought = static_cast<wide>(now - since_) * rate_.tokens_;
  const wide room = full() - level_;
  level_ += std::min(brought, room);
  since_ = now;
}

// Takes n tokens, or nothing if they would come after `latest`. Under the mutex.
reservation rate_limiter::take(std::int64_t now, std::int64_t n, std::int64_t latest) noexcept {
  if (rate_.is_unlimited() || n == 0) return {this, 0, at(now)};
  if (n > burst_) return {};
  advance(now);
  const wide left = level_ - static_cast<wide>(n) * rate_.nanoseconds_;
  nanos when = now;
  if (left < 0) {
    if (rate_.tokens_ == 0) return {};
    const wide wait = (-left + rate_.tokens_ - 1) / rate_.tokens_;
    // Counted from the time of the level: with an earlier `now` the wait is longer.
    const wide sum = std::max(now, since_) + wait;
    if (sum >= never) return {};
    when = static_cast<nanos>(sum);
  }
  if (when > latest) return {};
  level_ = left;
  last_event_ = std::max(last_event_, when);
  return {this, n, at(when)};
}

bool rate_limiter::allow_at(clock::time_point now, std::int64_t n) {
  check_tokens(n);
  const detail::part_lock lock(mutex_);
  return static_cast<bool>(take(of(now), n, of(now)));
}

reservation rate_limiter::reserve_at(clock::time_point now, std::int64_t n) {
  check_tokens(n);
  const detail::part_lock lock(mutex_);
  return take(of(now), n, never);
}

bool rate_limiter::wait_within(std::int64_t n, const detail::wait_limit& limit) {
  check_tokens(n);
  return detail::in_turn(limit, [this, n](const detail::wait_limit& l) { return wait_now(n, l); });
}

bool rate_limiter::wait_now(std::int64_t n, const detail::wait_limit& limit) {
  const detail::kept_limit kept(limit);  // over all rounds
  nanos now = of(clock::now());
  const nanos latest = limit.as_deadline(now);
  reservation mine;
  for (;; now = of(clock::now())) {
    const std::uint64_t seen = changes();
    {
      const detail::part_lock lock(mutex_);
      if (n > burst_ && !rate_.is_unlimited()) {
        throw std::invalid_argument("vigil::rate_limiter::wait: " + std::to_string(n) +
                                    " tokens are more than the burst (" + std::to_string(burst_) +
                                    "), so they never come together; ask for fewer at a time");
      }
      mine = take(now, n, std::max(latest, now));
    }
    if (mine) break;
    if (limit.is_timed()) return false;
    wait_for_change(seen, limit);
  }
  const nanos turn = of(mine.time_to_act());
  if (turn <= now) return true;
  detail::caller self(limit.until(turn));
  if (self.may_not_wait()) {
    mine.cancel();
    self.refuse("rate_limiter::wait");
  }
  detail::outcome ended = detail::outcome::open;
  try {
    ended =
        self.wait(self.open(), {detail::wait_reason::rate_limiter, detail::birth_of(for_change_)});
  } catch (...) {
    mine.cancel();
    throw;
  }
  if (ended != detail::outcome::timeout) mine.cancel();
  self.throw_if_ended(ended);
  return true;
}

// Counts the changes. Read before looking whether a turn ever comes, and compared before
// waiting for a change, so that a change in between is not missed.
std::uint64_t rate_limiter::changes() noexcept {
  const detail::queue_guard guard(for_change_);
  return changes_;
}

void rate_limiter::wait_for_change(std::uint64_t seen, const detail::wait_limit& limit) {
  detail::queue_guard guard(for_change_);
  if (changes_ != seen) return;
  detail::caller self(limit);
  detail::before_waiting(self, "rate_limiter::wait", guard);
  detail::queued_wait own;
  detail::wait_in(detail::all_of(for_change_),
                  own,
                  self,
                  detail::wait_reason::rate_limiter,
                  guard,
                  detail::changes_nothing);
}

// Called after the change, without the mutex.
void rate_limiter::tell_change() noexcept {
  detail::wake_list claimed;
  {
    const detail::queue_guard guard(for_change_);
    ++changes_;
    detail::all_of(for_change_).claim_all(claimed);
  }
  claimed.deliver();
}

// Later reservations count on the tokens that come after this one's time: those stay
// taken.
void rate_limiter::give_back(std::int64_t at, std::int64_t n) noexcept {
  const detail::part_lock lock(mutex_);
  const nanos now = of(clock::now());
  if (rate_.is_unlimited() || at <= now) return;
  const wide back = static_cast<wide>(n) * rate_.nanoseconds_ -
                    static_cast<wide>(last_event_ - at) * rate_.tokens_;
  if (back <= 0) return;
  advance(now);
  level_ = std::min(level_ + back, full());
  if (at == last_event_ && rate_.tokens_ != 0) {
    const wide before = at - static_cast<wide>(n) * rate_.nanoseconds_ / rate_.tokens_;
    if (before >= now) last_event_ = static_cast<nanos>(before);
  }
}

void reservation::cancel() noexcept {
  if (own_.limiter == nullptr || own_.count == 0) return;
  own_.limiter->give_back(of(own_.at), std::exchange(own_.count, 0));
}

// Under the mutex.
void rate_limiter::change_to(const rate& r) noexcept {
  advance(of(clock::now()));
  // The same tokens in other units; of a fraction only the whole units are kept.
  if (rate_.is_unlimited() || r.is_unlimited()) {
    rate_ = r;
    level_ = full();
    return;
  }
  const wide whole = level_ / rate_.nanoseconds_;
  const wide part = level_ % rate_.nanoseconds_;
  level_ = whole < least_level / r.nanoseconds_
               ? least_level
               : whole * r.nanoseconds_ + part * r.nanoseconds_ / rate_.nanoseconds_;
  rate_ = r;
}

void rate_limiter::set_rate(const rate& r) {
  {
    const detail::part_lock lock(mutex_);
    change_to(r);
  }
  tell_change();
}

void rate_limiter::set_burst(std::int64_t burst) {
  check_burst(burst);
  {
    const detail::part_lock lock(mutex_);
    advance(of(clock::now()));
    burst_ = burst;
    level_ = std::min(level_, full());
  }
  tell_change();
}

rate rate_limiter::limit() const {
  const detail::part_lock lock(mutex_);
  return rate_;
}

std::int64_t rate_limiter::burst() const {
  const detail::part_lock lock(mutex_);
  return burst_;
}

std::int64_t rate_limiter::tokens() const {
  const detail::part_lock lock(mutex_);
  if (rate_.is_unlimited()) return burst_;
  const nanos now = of(clock::now());
  wide level = level_;
  if (now > since_)
    level += std::min(static_cast<wide>(now - since_) * rate_.tokens_, full() - level);
  const wide d = rate_.nanoseconds_;
  const wide whole = level >= 0 ? level / d : -((-level + d - 1) / d);
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  return whole < least ? least : static_cast<std::int64_t>(whole);
}

}  // namespace VIGIL_PUBLIC
