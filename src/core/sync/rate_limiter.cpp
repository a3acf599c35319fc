// rate_limiter: the level of a bucket, in whole numbers.
//
// With n tokens in d nanoseconds a token is d units and a nanosecond brings n. So the
// only time that is ever rounded is the instant of a reservation, which is rounded up.
// The level may be negative: tokens that are reserved and have not come yet.
//
// If all open reservations act at their times, the bucket holds at each time the level,
// the tokens of the reservations that are still open, and the withheld ones. It is never
// above the burst. A level that rises until the bucket is full while reservations are
// open would count on tokens that are lost. Therefore, at the time of each open
// reservation, the level and the tokens of that one and of later ones are at most the
// burst. Reservations keep that by themselves. A cancel gives back no more than keeps it
// (room), and the rest is withheld until it may be given back, is taken by a call that
// can act at once (take_withheld), or does not fit into the bucket any more.
#include "core/sched/worker/turn_budget.hpp"
#include "core/sync/wait_queue.hpp"

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

// The ends of the range, for sums that may be greater.
constexpr wide greatest = (-least_level - 1) * 2 + 1;

// With so few open reservations each change is followed by a count. With more a count
// waits for a part of their number, so that on average it costs a change little.
constexpr std::size_t few_grants = 32;
constexpr std::size_t count_part = 8;
constexpr std::size_t list_room = 1024;  // memory that an empty list keeps

wide sum(wide a, wide b) noexcept {
  wide result = 0;
  if (!__builtin_add_overflow(a, b, &result)) return result;
  return b < 0 ? -greatest : greatest;
}

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

namespace detail {

void grant_list::add(const open_grant& t) {
  const auto is_before = [](const open_grant& a, const open_grant& b) { return a.at < b.at; };
  if (is_empty() || t.at >= grants_.back().at) {
    grants_.push_back(t);
  } else {
    const auto first = grants_.begin() + static_cast<std::ptrdiff_t>(first_);
    grants_.insert(std::upper_bound(first, grants_.end(), t, is_before), t);
  }
  ++open_;
}

void grant_list::pop_front() noexcept {
  if (grants_[first_++].tokens != 0) --open_;
  tidy();
}

grant_list::found grant_list::remove(const open_grant& t) noexcept {
  const auto first = grants_.begin() + static_cast<std::ptrdiff_t>(first_);
  auto it = std::lower_bound(first, grants_.end(), t, [](const open_grant& a, const open_grant& b) {
    return a.at < b.at;
  });
  while (it != grants_.end() && it->at == t.at && it->tokens != t.tokens)
    ++it;
  if (it == grants_.end() || it->at != t.at) return found::none;
  const bool was_last = it + 1 == grants_.end();
  it->tokens = 0;
  --open_;
  tidy();
  return was_last ? found::last : found::in_front;
}

void grant_list::clear() noexcept {
  open_ = 0;
  tidy();
}

// Lets no more than half of the list be gone or cancelled, nor its last one.
void grant_list::tidy() noexcept {
  if (open_ == 0) {
    first_ = 0;
    grants_.clear();
    if (grants_.capacity() > list_room) std::vector<open_grant>().swap(grants_);
    return;
  }
  while (grants_.back().tokens == 0)
    grants_.pop_back();
  if (grants_.size() / 2 < open_) return;
  grants_.erase(grants_.begin(), grants_.begin() + static_cast<std::ptrdiff_t>(first_));
  std::erase_if(grants_, [](const open_grant& t) { return t.tokens == 0; });
  first_ = 0;
}

}  // namespace detail

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
      for_change_(from) {
  check_burst(burst);
  level_ = full();
}

// Saturated: more than the clock counts is as good as the most that it does.
rate_limiter::wide rate_limiter::units(wide tokens) const noexcept {
  const wide d = rate_.nanoseconds_;
  if (tokens > never && tokens > -least_level / d) return -least_level;
  return tokens * d;
}

// Brings everything up to `now`; one before the last changes nothing. Under the mutex.
void rate_limiter::advance(std::int64_t now) const noexcept {
  bool has_passed = false;
  for (; !grants_.is_empty() && grants_.front().at < now; grants_.pop_front()) {
    // Before it acts: the withheld tokens are lost that do not fit then.
    if (withheld_ != 0) bring(grants_.front().at);
    open_tokens_ -= grants_.front().tokens;
    has_passed = true;
  }
  bring(now);
  if (has_passed) let_go();
}

// The tokens alone. Under the mutex.
void rate_limiter::bring(std::int64_t now) const noexcept {
  if (now <= since_) return;
  // No overflow: see least_level.
  const wide brought = static_cast<wide>(now - since_) * rate_.tokens_;
  const wide room = full() - level_;
  level_ += std::min(brought, room);
  since_ = now;
  trim_withheld();
}

// Under the mutex.
void rate_limiter::trim_withheld() const noexcept {
  if (withheld_ == 0) return;
  const wide room = full() - level_ - units(open_tokens_);
  withheld_ = std::max<wide>(0, std::min(withheld_, room));
}

// Makes peak_ exact. Under the mutex.
void rate_limiter::recount() const noexcept {
  uncounted_ = 0;
  peak_ = -greatest;
  wide tokens = 0;
  grants_.each_from_last([&](const detail::open_grant& t) {
    tokens += t.tokens;
    peak_ = std::max(peak_, sum(units(tokens), static_cast<wide>(t.at) * rate_.tokens_));
  });
}

// Gives back what need not be withheld any more. Under the mutex.
void rate_limiter::let_go() const noexcept {
  if (withheld_ == 0) return;
  wide back = withheld_;
  if (!grants_.is_empty()) {
    if (grants_.size() <= few_grants || ++uncounted_ > grants_.size() / count_part) recount();
    const wide now = static_cast<wide>(since_) * rate_.tokens_;
    const wide room = sum(sum(full() - level_, now), -peak_);
    back = std::min(back, room);
  }
  if (back <= 0) return;
  withheld_ -= back;
  level_ = std::min(sum(level_, back), full());
}

// Takes them if they are in the bucket now and each open reservation finds its own
// nevertheless. Otherwise they would be lost while callers cancel again and again. Under
// the mutex.
bool rate_limiter::take_withheld(std::int64_t n) noexcept {
  const wide taken = units(n);
  if (withheld_ < taken) return false;
  wide there = sum(sum(level_, units(open_tokens_)), withheld_ - taken);
  bool is_enough = there >= 0;
  nanos since = since_;
  std::size_t looks = few_grants;
  grants_.each_while([&](const detail::open_grant& t) {
    there = sum(there, static_cast<wide>(t.at - since) * rate_.tokens_);
    since = t.at;
    if (!is_enough || there >= full()) return false;  // full again: nothing is missing
    there -= units(t.tokens);
    is_enough = there >= 0 && --looks != 0;
    return is_enough;
  });
  if (is_enough) withheld_ -= taken;
  return is_enough;
}

// Under the mutex. Throws std::bad_alloc, with nothing changed.
void rate_limiter::add_grant(std::int64_t at, std::int64_t n) {
  const bool is_first = grants_.is_empty();
  grants_.add({at, n});
  open_tokens_ += n;
  const wide own = sum(units(n), static_cast<wide>(at) * rate_.tokens_);
  peak_ = is_first ? own : std::max(own, sum(peak_, units(n)));
}

// Takes n tokens, or nothing if they would come after `latest`. Only what comes after
// `present` can be cancelled. Under the mutex. Throws std::bad_alloc, with nothing taken.
reservation rate_limiter::take(std::int64_t now,
                               std::int64_t n,
                               std::int64_t latest,
                               std::int64_t present) {
  if (rate_.is_unlimited() || n == 0) return {this, 0, at(now)};
  if (n > burst_) return {};
  advance(now);
  const wide left = level_ - static_cast<wide>(n) * rate_.nanoseconds_;
  nanos when = now;
  if (left < 0) {
    if (take_withheld(n)) return {this, 0, at(now)};
    if (rate_.tokens_ == 0) return {};
    const wide wait = (-left + rate_.tokens_ - 1) / rate_.tokens_;
    // Counted from the time of the level: with an earlier `now` the wait is longer.
    const wide sum = std::max(now, since_) + wait;
    if (sum >= never) return {};
    when = static_cast<nanos>(sum);
  }
  if (when > latest) return {};
  if (when > present && when >= since_) add_grant(when, n);
  level_ = left;
  return {this, n, at(when)};
}

bool rate_limiter::allow_at(clock::time_point now, std::int64_t n) {
  check_tokens(n);
  const detail::part_lock lock(mutex_);
  return static_cast<bool>(take(of(now), n, of(now), never));
}

reservation rate_limiter::reserve_at(clock::time_point now, std::int64_t n) {
  check_tokens(n);
  const nanos present = std::min(of(now), of(clock::now()));
  const detail::part_lock lock(mutex_);
  return take(of(now), n, never, present);
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
      mine = take(now, n, std::max(latest, now), now);
    }
    if (mine) break;
    if (limit.is_timed()) return false;
    wait_for_change(seen, limit);
  }
  const nanos time = of(mine.time_to_act());
  if (time <= now) return true;
  detail::caller self(limit.until(time));
  if (self.may_not_wait()) {
    mine.cancel();
    self.refuse("rate_limiter::wait");
  }
  detail::outcome ended = detail::outcome::open;
  try {
    ended = self.wait(self.open(), {detail::wait_reason::rate_limiter, &for_change_});
  } catch (...) {
    mine.cancel();
    throw;
  }
  if (ended != detail::outcome::timeout) mine.cancel();
  self.throw_if_ended(ended);
  return true;
}

// Counts the changes. Read before looking whether a time ever comes, and compared before
// waiting for a change, so that a change in between is not missed.
std::uint64_t rate_limiter::changes() noexcept {
  const detail::queue_guard guard(for_change_);
  return changes_;
}

void rate_limiter::wait_for_change(std::uint64_t seen, const detail::wait_limit& limit) {
  detail::queue_guard guard(for_change_);
  if (changes_ != seen) return;
  detail::caller self(limit);
  detail::wait_in(
      for_change_, self, detail::wait_reason::rate_limiter, "rate_limiter::wait", guard);
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

void rate_limiter::give_back(std::int64_t at, std::int64_t n) noexcept {
  const detail::part_lock lock(mutex_);
  const nanos now = of(clock::now());
  if (rate_.is_unlimited() || at <= now) return;
  advance(now);
  const auto found = grants_.remove({at, n});
  if (found == detail::grant_list::found::none) return;
  open_tokens_ -= n;
  withheld_ = sum(withheld_, units(n));
  // The others are all in front of it.
  if (found == detail::grant_list::found::last && peak_ != greatest) peak_ = sum(peak_, -units(n));
  trim_withheld();
  let_go();
}

void reservation::cancel() noexcept {
  if (own_.limiter == nullptr || own_.count == 0) return;
  own_.limiter->give_back(of(own_.at), std::exchange(own_.count, 0));
}

// The same tokens; of a fraction only the whole units are kept.
rate_limiter::wide rate_limiter::in_other_units(wide amount, const rate& r) const noexcept {
  const wide whole = amount / rate_.nanoseconds_;
  const wide part = amount % rate_.nanoseconds_;
  if (whole < least_level / r.nanoseconds_) return least_level;
  if (whole > -least_level / r.nanoseconds_) return -least_level;
  return whole * r.nanoseconds_ + part * r.nanoseconds_ / rate_.nanoseconds_;
}

// Under the mutex.
void rate_limiter::change_to(const rate& r) noexcept {
  advance(of(clock::now()));
  if (rate_.is_unlimited() || r.is_unlimited()) {
    grants_.clear();
    open_tokens_ = 0;
    withheld_ = 0;
    rate_ = r;
    level_ = full();
    return;
  }
  level_ = in_other_units(level_, r);
  withheld_ = in_other_units(withheld_, r);
  rate_ = r;
  trim_withheld();
  recount();
  let_go();
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
    trim_withheld();
    let_go();
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
  advance(of(clock::now()));
  const wide d = rate_.nanoseconds_;
  const wide whole = level_ >= 0 ? level_ / d : -((-level_ + d - 1) / d);
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  return whole < least ? least : static_cast<std::int64_t>(whole);
}

}  // namespace VIGIL_PUBLIC
