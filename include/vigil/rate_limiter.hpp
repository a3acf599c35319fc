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
// instants are exact, and a token is never early by a nanosecond. Behaviour: Go's
// golang.org/x/time/rate.
//
// Thread safety: everything may be called from fibers of any runtime and from plain
// threads with the same clock (a runtime on virtual time has its own). The limiter must
// outlive its reservations.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/mutex.hpp>

#include <chrono>
#include <cstdint>
#include <utility>

namespace VIGIL_PUBLIC {

class rate_limiter;

// rate: how fast tokens come.
class rate {
 public:
  // n tokens in each d; with n = 0 none ever come. Throws std::invalid_argument if n is
  // negative, or d is not positive.
  template <detail::duration_like D>
  static rate per(std::int64_t n, const D& d) {
    return checked(n, detail::to_nanos(d));
  }

  // One token in each d.
  template <detail::duration_like D>
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

}  // namespace detail

// reservation: the right to act at a given time. Can be moved, not copied, so it is given
// back once at most. Dropping it gives nothing back.
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

  // Gives back its tokens, except those that later reservations count on. Does nothing
  // once its time has come, or when called again.
  VIGIL_API void cancel() noexcept;

 private:
  friend class rate_limiter;

  reservation() noexcept = default;  // grants nothing

  reservation(rate_limiter* limiter, std::int64_t tokens, clock::time_point at) noexcept
      : own_{limiter, tokens, at} {}

  detail::reserved_tokens own_;
};

class rate_limiter {
 public:
  // Throws std::invalid_argument for a negative burst. A burst of 0 allows nothing,
  // unless the rate is unlimited.
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

  // Takes n tokens, even ones that are still to come, and says when they come.
  reservation reserve(std::int64_t n = 1) { return reserve_at(clock::now(), n); }

  VIGIL_API reservation reserve_at(clock::time_point now, std::int64_t n = 1);

  // Waits for its turn; at a rate of 0, for a change of the rate or the burst. Throws
  // std::invalid_argument if n is larger than the burst, since it would wait for ever. If
  // it throws `stopped`, the reserved tokens are given back.
  void wait(std::int64_t n = 1) { wait_within(n, detail::no_limit); }

  // The same; throws `cancelled`, and gives back the reserved tokens, when ctx is done.
  void wait(std::int64_t n, const context& ctx) { wait_within(n, detail::cancelled_by(ctx)); }

  void wait(const context& ctx) { wait(1, ctx); }

  // Returns false at once, with nothing taken, if its turn comes after the deadline.
  template <detail::duration_like D>
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
  // The number of whole tokens there now; if negative, the number owed to reservations.
  VIGIL_API std::int64_t tokens() const;

 private:
  friend class reservation;
  __extension__ using wide = __int128;

  // Waits: throws stopped, wrong_place, std::invalid_argument.
  VIGIL_API bool wait_within(std::int64_t n, const detail::wait_limit& limit);
  bool wait_now(std::int64_t n, const detail::wait_limit& limit);
  reservation take(std::int64_t now, std::int64_t n, std::int64_t latest) noexcept;
  void advance(std::int64_t now) noexcept;
  void give_back(std::int64_t at, std::int64_t n) noexcept;
  void change_to(const rate& r) noexcept;
  std::uint64_t changes() noexcept;
  void wait_for_change(std::uint64_t seen, const detail::wait_limit& limit);
  void tell_change() noexcept;

  wide full() const noexcept { return static_cast<wide>(burst_) * rate_.nanoseconds_; }

  mutable mutex mutex_;  // never held across a wait; guards the fields below
  rate rate_;
  std::int64_t burst_;
  // In units of 1 / rate_.nanoseconds_ of a token: each nanosecond brings rate_.tokens_.
  wide level_;
  std::int64_t since_;             // the time at which level_ was current
  std::int64_t last_event_;        // the latest time that was reserved
  detail::wait_queue for_change_;  // waiters whose turn never comes; its lock guards changes_
  std::uint64_t changes_ = 0;      // of the rate and the burst, so far
};

}  // namespace VIGIL_PUBLIC
