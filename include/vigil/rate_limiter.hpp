// rate_limiter: so many events in a time, with bursts.
//
//   vigil::rate_limiter limiter(vigil::rate::per(100, 1s), 10);
//   for (auto& request : requests) {
//     limiter.wait();
//     send(request);
//   }
//
// A bucket holds up to `burst` tokens and is full at first; each event takes
// one, and they come back at the rate. Arithmetic is in whole numbers: on virtual
// time the instants are exact, and a token is never early by a nanosecond.
// Behaviour: Go's golang.org/x/time/rate.
//
// Thread safety: everything may be called from fibers of any runtime and from
// plain threads, if their clocks are the same (a runtime on virtual time has its
// own). The limiter must outlive its reservations.
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

namespace vigil::inline VIGIL_ABI {

class rate_limiter;

// How fast tokens come.
class rate {
 public:
  // n tokens in each d. n = 0: none ever. Throws std::invalid_argument if n is
  // negative, or d not positive.
  template <detail::duration_like D>
  static rate per(std::int64_t n, const D& d) {
    return checked(n, detail::to_nanos(d));
  }

  // One token in each d.
  template <detail::duration_like D>
  static rate every(const D& d) {
    return per(1, d);
  }

  // Everything is allowed at once, whatever the burst.
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

// The right to act at a given time. Can be moved, not copied: it is given back
// once. Dropping it gives nothing back.
class [[nodiscard]] reservation {
 public:
  reservation(reservation&& other) noexcept : own_(std::exchange(other.own_, {})) {}

  reservation& operator=(reservation&& other) noexcept {
    own_ = std::exchange(other.own_, {});
    return *this;
  }

  ~reservation() = default;

  // False: more than the burst was asked for, or none will ever come; or it was
  // moved from.
  explicit operator bool() const noexcept { return own_.limiter != nullptr; }

  // When to act; time_point::max() if never.
  clock::time_point time_to_act() const noexcept { return own_.at; }

  // How long until then; zero if it has come.
  std::chrono::nanoseconds delay() const noexcept {
    if (own_.limiter == nullptr) return std::chrono::nanoseconds::max();
    const clock::time_point now = clock::now();
    return own_.at > now ? own_.at - now : std::chrono::nanoseconds(0);
  }

  // Gives back what is left of it: all, but for the tokens that later
  // reservations count on. Nothing once its time has come, or the second time.
  VIGIL_API void cancel() noexcept;

 private:
  friend class rate_limiter;

  reservation() noexcept = default;  // never

  reservation(rate_limiter* limiter, std::int64_t tokens, clock::time_point at) noexcept
      : own_{limiter, tokens, at} {}

  detail::reserved_tokens own_;
};

class rate_limiter {
 public:
  // Throws std::invalid_argument for a negative burst. A burst of 0 allows
  // nothing, unless the rate is unlimited.
  VIGIL_API rate_limiter(const rate& r, std::int64_t burst);
  rate_limiter(const rate_limiter&) = delete;
  rate_limiter& operator=(const rate_limiter&) = delete;

  // Each throws std::invalid_argument for a negative n; 0 is always allowed. The
  // times that are given should not go back: a call at a time before the last
  // one's finds what had come by that one, tokens included that come later than
  // its own time. So does Go's (TestLimiterJumpBackwards); but none comes twice.

  // Whether n tokens are there now; takes them, or none.
  bool allow(std::int64_t n = 1) { return allow_at(clock::now(), n); }

  VIGIL_API bool allow_at(clock::time_point now, std::int64_t n = 1);

  // Takes n tokens now, even ones that are still to come, and says when they come.
  reservation reserve(std::int64_t n = 1) { return reserve_at(clock::now(), n); }

  VIGIL_API reservation reserve_at(clock::time_point now, std::int64_t n = 1);

  // Waits for its turn; while none will ever come (a rate of 0), for a change of
  // the rate or the burst. Throws std::invalid_argument if n is more than the burst,
  // since it would wait for ever; `stopped`, and gives back what it had reserved.
  void wait(std::int64_t n = 1) { wait_within(n, detail::no_limit); }

  // At most until ctx is done: then throws `cancelled`, and gives back what it had
  // reserved.
  void wait(std::int64_t n, const context& ctx) { wait_within(n, detail::cancelled_by(ctx)); }

  void wait(const context& ctx) { wait(1, ctx); }

  // False, at once and with nothing taken, if its turn comes after the deadline.
  template <detail::duration_like D>
  bool wait_for(const D& timeout, std::int64_t n = 1) {
    return wait_within(n, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  bool wait_until(const Time& t, std::int64_t n = 1) {
    return wait_within(n, detail::until(t));
  }

  // Applies from now on; earlier reservations keep their time. A debt larger than
  // the new rate pays within the range of the clock may be forgiven beyond that.
  VIGIL_API void set_rate(const rate& r);
  VIGIL_API void set_burst(std::int64_t burst);
  VIGIL_API rate limit() const;
  VIGIL_API std::int64_t burst() const;
  // Whole tokens there now; negative: so many are owed to reservations.
  VIGIL_API std::int64_t tokens() const;

 private:
  friend class reservation;
  __extension__ using wide = __int128;

  // Waits: throws stopped, wrong_place, std::invalid_argument.
  VIGIL_API bool wait_within(std::int64_t n, const detail::wait_limit& limit);
  reservation take(std::int64_t now, std::int64_t n, std::int64_t latest) noexcept;
  void advance(std::int64_t now) noexcept;
  void give_back(std::int64_t at, std::int64_t n) noexcept;
  void change_to(const rate& r) noexcept;
  std::uint64_t changes() noexcept;
  void wait_for_change(std::uint64_t seen, const detail::wait_limit& limit);
  void tell_change() noexcept;

  wide full() const noexcept { return static_cast<wide>(burst_) * rate_.nanoseconds_; }

  mutable mutex mutex_;  // never held across a wait; guards what follows
  rate rate_;
  std::int64_t burst_;
  // In 1 / rate_.nanoseconds_ of a token: a nanosecond brings rate_.tokens_.
  wide level_;
  std::int64_t since_;             // when the level was that
  std::int64_t last_event_;        // the latest time that was reserved
  detail::wait_queue for_change_;  // those whose turn never comes; its lock guards
  std::uint64_t changes_ = 0;      // of the rate and the burst
};

}  // namespace vigil::inline VIGIL_ABI
