// rate_limiter: a limit on the number of events in a time, with bursts.
//
//   vigil::rate_limiter limiter(vigil::rate::per(100, 1s), 10);
//   for (auto& request : requests) {
//     limiter.wait();
//     send(request);
//   }
//
// A bucket holds up to `burst` tokens and is full at first. Each event takes one, and
// they come back at the rate. The arithmetic is in whole numbers: on virtual time the
// instants are exact, and a token is never early by a nanosecond.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/mutex.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace VIGIL_PUBLIC {

class rate_limiter;

// rate: how fast tokens come. Throws std::invalid_argument for a negative n, and for a
// time that is not positive. Thread safety: a plain value. Lifetime: it refers to
// nothing. Shutdown: it belongs to no run. Cost: two numbers. Go: rate.Limit.
class rate {
 public:
  // n tokens in each d; with n = 0 none ever come. Throws std::invalid_argument if n is
  // negative, or d is not positive.
  template <detail::duration_argument D>
  static rate per(std::int64_t n, const D& d) {
    return checked(n, detail::to_nanos(d));
  }

  // One token in each d.
  template <detail::duration_argument D>
  static rate every(const D& d) {
    return per(1, d);
  }

  // Allows everything at once, whatever the burst.
  static constexpr rate unlimited() noexcept { return rate(0, 0); }

  constexpr bool is_unlimited() const noexcept { return nanoseconds_ == 0; }

  friend constexpr bool operator==(const rate&, const rate&) noexcept = default;

 private:
  friend class rate_limiter;

  constexpr rate(std::int64_t n, std::int64_t nanoseconds) noexcept
      : tokens_(n), nanoseconds_(nanoseconds) {}

  VIGIL_API static rate checked(std::int64_t n, std::int64_t nanoseconds);

  std::int64_t tokens_;
  std::int64_t nanoseconds_;
};

namespace detail {

struct reserved_tokens {
  rate_limiter* limiter = nullptr;
  std::int64_t count = 0;
  clock::time_point at = clock::time_point::max();
};

struct open_grant {
  std::int64_t at;
  std::int64_t tokens;  // 0: cancelled
};

// The reservations whose time has not come, by time. The last one is never cancelled.
class grant_list {
 public:
  std::size_t size() const noexcept { return open_; }

  bool is_empty() const noexcept { return open_ == 0; }

  const open_grant& front() const noexcept { return grants_[first_]; }

  // From the last one back; those that are cancelled are skipped.
  template <class F>
  void each_from_last(F f) const {
    for (std::size_t i = grants_.size(); i != first_; --i) {
      if (grants_[i - 1].tokens != 0) f(grants_[i - 1]);
    }
  }

  // From the first one, those that are cancelled too, while f returns true.
  template <class F>
  void each_while(F f) const {
    for (std::size_t i = first_; i != grants_.size() && f(grants_[i]); ++i) {
    }
  }

  // Throws std::bad_alloc, with nothing changed.
  void add(const open_grant& t);
  void pop_front() noexcept;

  enum class found { none, last, in_front };

  // Removes one with this time and number, if there is one.
  found remove(const open_grant& t) noexcept;
  void clear() noexcept;

 private:
  void tidy() noexcept;

  std::vector<open_grant> grants_;
  std::size_t first_ = 0;  // those in front of it are gone
  std::size_t open_ = 0;   // that are not cancelled
};

}  // namespace detail

// reservation: the right to act at a given time. Can be moved, not copied, so it is given
// back once at most. Dropping it gives nothing back. Throws nothing. Thread safety: one
// fiber or thread at a time. Lifetime: its limiter outlives it. Cost: cancel() allocates
// nothing. Go: rate.Reservation.
class [[nodiscard]] reservation {
 public:
  reservation(reservation&& other) noexcept : own_(std::exchange(other.own_, {})) {}

  reservation& operator=(reservation&& other) noexcept {
    own_ = std::exchange(other.own_, {});
    return *this;
  }

  ~reservation() = default;

  // False if more than the burst was requested, if the tokens will never come, and after
  // a move.
  explicit operator bool() const noexcept { return own_.limiter != nullptr; }

  // When to act; time_point::max() means never.
  clock::time_point time_to_act() const noexcept { return own_.at; }

  // The time until time_to_act(); zero if it has come.
  std::chrono::nanoseconds delay() const noexcept {
    if (own_.limiter == nullptr) return std::chrono::nanoseconds::max();
    const clock::time_point now = clock::now();
    return own_.at > now ? own_.at - now : std::chrono::nanoseconds(0);
  }

  // Gives back its tokens at once, except those without which later reservations would
  // act too close to other events: the limiter gives these back when no such reservation
  // is open any more. Before that, only a call that can act at once takes of them, if it
  // leaves enough for each open reservation. So once all open ones are cancelled, the
  // tokens are as if none had ever been made. Does nothing when called again, nor once
  // its time has come, by the clock or by the latest time that was passed to the limiter.
  // Allocates nothing.
  VIGIL_API void cancel() noexcept;

 private:
  friend class rate_limiter;

  reservation() noexcept = default;  // grants nothing

  reservation(rate_limiter* limiter, std::int64_t tokens, clock::time_point at) noexcept
      : own_{limiter, tokens, at} {}

  detail::reserved_tokens own_;
};

// rate_limiter: a bucket of tokens that come at a rate. Throws std::invalid_argument for
// numbers out of range, std::bad_alloc if a reservation cannot be noted; from waits
// `stopped`, wrong_place, and `cancelled` with a context. Thread safety: fibers of any
// runtime and plain threads with the same clock (a runtime on virtual time has its own).
// Lifetime: it outlives its reservations and waits. Shutdown: ends a wait by `stopped`,
// and gives its tokens back. Cost: a lock and a little arithmetic; it keeps a list of the
// open reservations. Behaviour: Go's golang.org/x/time/rate.
class rate_limiter {
 public:
  // A burst of 0 allows nothing, unless the rate is unlimited. Throws
  // std::invalid_argument for a negative burst.
  VIGIL_API rate_limiter(const rate& r, std::int64_t burst, const site& from = site::current());
  rate_limiter(const rate_limiter&) = delete;
  rate_limiter& operator=(const rate_limiter&) = delete;

  // The calls below throw std::invalid_argument for a negative n; n = 0 is always
  // allowed. Times that are passed should not go back: a call at an earlier time than the
  // last one's finds the tokens that had come by the last one's, and no token comes
  // twice. Go's limiter does the former too (TestLimiterJumpBackwards).

  // Takes n tokens if they are there now; otherwise takes none and returns false.
  bool allow(std::int64_t n = 1) { return allow_at(clock::now(), n); }

  VIGIL_API bool allow_at(clock::time_point now, std::int64_t n = 1);

  // Takes n tokens, even ones that are still to come, and says when they come. Throws
  // std::bad_alloc, with nothing taken, if it cannot note that they are still to come.
  reservation reserve(std::int64_t n = 1) { return reserve_at(clock::now(), n); }

  VIGIL_API reservation reserve_at(clock::time_point now, std::int64_t n = 1);

  // Waits for its time; at a rate of 0, for a change of the rate or the burst. Throws
  // std::invalid_argument if n is larger than the burst, since it would wait for ever,
  // and std::bad_alloc, with nothing taken, like reserve(). If it throws `stopped`, the
  // reserved tokens are given back as by reservation::cancel().
  void wait(std::int64_t n = 1) { wait_within(n, detail::no_limit); }

  // The same; throws `cancelled`, and gives back the reserved tokens, when ctx is done.
  void wait(std::int64_t n, const context& ctx) { wait_within(n, detail::cancelled_by(ctx)); }

  void wait(const context& ctx) { wait(1, ctx); }

  // Returns false at once, with nothing taken, if its time comes after the deadline.
  template <detail::duration_argument D>
  bool wait_for(const D& timeout, std::int64_t n = 1) {
    return wait_within(n, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  bool wait_until(const Time& t, std::int64_t n = 1) {
    return wait_within(n, detail::until(t));
  }

  // Applies from now on; earlier reservations keep their time. A debt that the new rate
  // cannot pay within the range of the clock may be forgiven beyond that.
  VIGIL_API void set_rate(const rate& r);
  VIGIL_API void set_burst(std::int64_t burst);
  VIGIL_API rate limit() const;
  VIGIL_API std::int64_t burst() const;
  // The number of whole tokens there now; if negative, the number owed to reservations,
  // and those that are not given back yet of cancelled ones.
  VIGIL_API std::int64_t tokens() const;

 private:
  friend class reservation;
  __extension__ using wide = __int128;

  // Waits: throws stopped, wrong_place, std::invalid_argument, std::bad_alloc.
  VIGIL_API bool wait_within(std::int64_t n, const detail::wait_limit& limit);
  bool wait_now(std::int64_t n, const detail::wait_limit& limit);
  reservation take(std::int64_t now, std::int64_t n, std::int64_t latest, std::int64_t present);
  void add_grant(std::int64_t at, std::int64_t n);
  void advance(std::int64_t now) const noexcept;
  void bring(std::int64_t now) const noexcept;
  void trim_withheld() const noexcept;
  void recount() const noexcept;
  void let_go() const noexcept;
  bool take_withheld(std::int64_t n) noexcept;
  void give_back(std::int64_t at, std::int64_t n) noexcept;
  void change_to(const rate& r) noexcept;
  std::uint64_t changes() noexcept;
  void wait_for_change(std::uint64_t seen, const detail::wait_limit& limit);
  void tell_change() noexcept;

  wide full() const noexcept { return static_cast<wide>(burst_) * rate_.nanoseconds_; }

  wide units(wide tokens) const noexcept;
  wide in_other_units(wide amount, const rate& r) const noexcept;

  mutable mutex mutex_;  // never held across a wait; guards the fields below
  rate rate_;
  std::int64_t burst_;
  // Amounts are in units of 1 / rate_.nanoseconds_ of a token: each nanosecond brings
  // rate_.tokens_. Even a const call brings them up to its time.
  mutable wide level_;
  mutable wide withheld_ = 0;          // of cancelled reservations, not given back yet
  mutable std::int64_t since_;         // the time at which level_ and withheld_ were current
  mutable detail::grant_list grants_;  // none before since_
  mutable wide open_tokens_ = 0;       // whole ones, of grants_
  // Not below any open reservation's own tokens, those of later ones and what its time
  // brings, added up.
  mutable wide peak_ = 0;
  mutable std::size_t uncounted_ = 0;  // changes since peak_ was exact
  detail::wait_queue for_change_;      // waiters whose time never comes; its lock guards changes_
  std::uint64_t changes_ = 0;          // of the rate and the burst, so far
};

}  // namespace VIGIL_PUBLIC
