// Deadlines on other clocks: wall time, which follows steps, and boot time, which counts
// suspend.
//
//   vigil::wall::sleep_until(midnight);        // when the wall clock reads it
//   vigil::boot::timer lease(renewal);         // whether the machine sleeps or not
//   auto second = vigil::ticker::aligned(1s);  // on each full second
//
// vigil::sleep_until and other calls convert a time point of another clock once; these
// deadlines stay on their clock. None comes before the clock reads its time. After a step
// forwards those that are due come at once, each once; after a step backwards they wait
// on. A suspend is the same to boot time as a step forwards.
//
// On virtual time both clocks begin with vigil::clock; testing::step_wall and
// testing::suspend_for move them.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/context.hpp>
#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/handle.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/ticker.hpp>
#include <vigil/timer.hpp>

#include <chrono>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

namespace detail {

enum class clock_kind : std::uint8_t { wall, boot };

class clock_callback;

VIGIL_API void retain(clock_callback* c) noexcept;
VIGIL_API void release(clock_callback* c) noexcept;

VIGIL_API std::int64_t now_on(clock_kind kind) noexcept;

// The time on that clock `delay` from now, saturated; long ago for zero or less.
inline std::int64_t after(clock_kind kind, std::int64_t delay) noexcept {
  return delay <= 0 ? INT64_MIN : saturating_add(now_on(kind), delay);
}

// Waits on a fiber: throws stopped, wrong_place, std::system_error.
VIGIL_API void sleep_on(clock_kind kind, std::int64_t when, const wait_limit& limit);

VIGIL_API channel_core* make_clock_timer(clock_kind kind, std::int64_t when);
VIGIL_API channel_core* make_aligned(std::int64_t period);
VIGIL_API bool stop_clock_timer(channel_core* timer) noexcept;
VIGIL_API bool reset_clock_timer(channel_core* timer, std::int64_t when);
VIGIL_API bool reset_aligned(channel_core* ticker, std::int64_t period);
VIGIL_API std::int64_t deadline_on_clock(const channel_core* timer) noexcept;
VIGIL_API std::uint64_t missed_on_clock(const channel_core* ticker) noexcept;

// The caller gets a handle of both.
VIGIL_API clock_callback* after_func_on(
    clock_kind kind, std::int64_t when, callback f, const site& from, timer_record*& record);
// The timer whose callback the calling fiber is in. The caller gets a handle of both.
VIGIL_API clock_callback* running_clock_timer(timer_record*& record) noexcept;
VIGIL_API bool stop_clock_timer(clock_callback& c) noexcept;
VIGIL_API bool reset_clock_timer(clock_callback& c, std::int64_t when);
VIGIL_API std::int64_t deadline_on_clock(const clock_callback& c) noexcept;
[[noreturn]] VIGIL_API void throw_empty_clock_timer();

}  // namespace detail

// wall_clock: the wall clock of the calling fiber's runtime, which is CLOCK_REALTIME, or
// virtual. Its time points are those of std::chrono::system_clock, in nanoseconds. Throws
// nothing. Thread safety: any thread. Cost: one system clock reading.
struct wall_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<std::chrono::system_clock, duration>;
  static constexpr bool is_steady = false;
  static constexpr auto kind = detail::clock_kind::wall;

  static time_point now() noexcept { return time_point(duration(detail::now_on(kind))); }
};

// boot_clock: the time since the machine was started, time in suspend included:
// CLOCK_BOOTTIME, or virtual. Throws nothing. Thread safety: any thread. Cost: one system
// clock reading.
struct boot_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<boot_clock>;
  static constexpr bool is_steady = true;
  static constexpr auto kind = detail::clock_kind::boot;

  static time_point now() noexcept { return time_point(duration(detail::now_on(kind))); }
};

// time_point_on: a time point of that clock, in any unit. wall_clock takes those of
// std::chrono::system_clock.
template <class T, class Clock>
concept time_point_on = detail::time_point_like<T> &&
                        std::is_same_v<typename T::clock, typename Clock::time_point::clock>;

// clock_timer: a timer on wall or boot time, as wall::timer and boot::timer. Like
// vigil::timer it is a handle, of a channel or of a callback; copies name the same timer.
//
// A timer that is due but stepped back before its value was received, or its callback
// started, waits again.
//
// Thread safety: that of vigil::timer. Lifetime: that of vigil::timer; when the last
// handle of a callback's timer goes, the callback still runs. Shutdown: that of
// vigil::timer. Cost: that of any timer, and two system calls where none was pending.
// While one is, a thread of the library waits for the kernel to tell of steps; each
// runtime has its own, which ends a second after the last timer.
template <class Clock>
class clock_timer {
 public:
  using time_point = typename Clock::time_point;

  // Makes an empty handle: stop() is false, reset() throws std::logic_error.
  clock_timer() noexcept = default;

  // Makes a timer that sends `t` on its channel when the clock reads it: at once if it
  // has passed, never for time_point::max(). Throws wrong_place on a thread without a
  // runtime, std::bad_alloc, and std::system_error if there is no descriptor or no thread
  // to hear of steps.
  template <time_point_on<Clock> Time>
  explicit clock_timer(const Time& t)
      : channel_(detail::channel_handle(
            detail::make_clock_timer(Clock::kind, detail::to_nanos(t.time_since_epoch())))) {}

  clock_timer(const clock_timer&) noexcept = default;
  clock_timer(clock_timer&&) noexcept = default;

  // The old callback is dropped last: its captures may own this timer.
  clock_timer& operator=(clock_timer other) noexcept {
    std::swap(record_, other.record_);
    std::swap(callback_, other.callback_);
    std::swap(channel_, other.channel_);
    return *this;
  }

  ~clock_timer() = default;

  explicit operator bool() const noexcept { return record_ || channel_.core() != nullptr; }

  // As timer::channel(): the value is the deadline, however late it is received.
  receiver<time_point> channel() const noexcept { return channel_; }

  // As timer::stop(): true exactly if the value of this arming had not been received and
  // will not be, or the callback had not started and will not.
  bool stop() const noexcept {
    if (callback_) return detail::stop_clock_timer(*callback_.get());
    return channel_.core() != nullptr && detail::stop_clock_timer(channel_.core());
  }

  // Calls stop(), then waits until a running callback has ended, as
  // timer::stop_and_wait() does.
  bool stop_and_wait() const { return stop_within(detail::no_limit); }

  bool stop_and_wait(const context& ctx) const { return stop_within(detail::cancelled_by(ctx)); }

  // Gives the timer a new deadline, and returns whether it was still pending, as stop()
  // does. May be called inside the callback. Throws runtime_gone, std::bad_alloc, and
  // std::system_error as the constructor does; the timer is then unchanged.
  template <time_point_on<Clock> Time>
  bool reset(const Time& t) const {
    const std::int64_t when = detail::to_nanos(t.time_since_epoch());
    if (callback_) return detail::reset_clock_timer(*callback_.get(), when);
    if (channel_.core() == nullptr) detail::throw_empty_clock_timer();
    return detail::reset_clock_timer(channel_.core(), when);
  }

  // The current deadline; time_point::max() if nothing is pending.
  time_point deadline() const noexcept {
    return time_point(std::chrono::nanoseconds(
        callback_                    ? detail::deadline_on_clock(*callback_.get())
        : channel_.core() != nullptr ? detail::deadline_on_clock(channel_.core())
                                     : INT64_MAX));
  }

  // As for vigil::timer: whether a pending callback keeps a program with
  // exit_when::all_done alive. It does unless unref() is called.
  void ref() const noexcept {
    if (record_) detail::set_referenced(record_.get(), true);
  }

  void unref() const noexcept {
    if (record_) detail::set_referenced(record_.get(), false);
  }

  bool has_ref() const noexcept { return record_ && detail::is_referenced(record_.get()); }

  // For after_func_at only.
  clock_timer(std::int64_t when, detail::callback f, const site& from) {
    detail::timer_record* record = nullptr;
    callback_ = detail::handle<detail::clock_callback>(
        detail::after_func_on(Clock::kind, when, std::move(f), from, record));
    record_ = detail::handle<detail::timer_record>(record);
  }

  // For callbacks that take their timer.
  explicit clock_timer(detail::running_timer_t) noexcept {
    detail::timer_record* record = nullptr;
    callback_ = detail::handle<detail::clock_callback>(detail::running_clock_timer(record));
    record_ = detail::handle<detail::timer_record>(record);
  }

 private:
  template <class Handle>
  friend class detail::scoped_handle;

  const detail::timer_record* record() const noexcept { return record_.get(); }

  bool stop_within(const detail::wait_limit& limit) const {
    const bool prevented = stop();
    return (record_ && detail::stop_and_wait(record_.get(), limit)) || prevented;
  }

  detail::handle<detail::timer_record> record_;
  detail::handle<detail::clock_callback> callback_;
  receiver<time_point> channel_;
};

// Wall time. Deadlines are time points of std::chrono::system_clock.
namespace wall {

// timer: a clock_timer on wall time, with all that is said there.
using timer = clock_timer<wall_clock>;

// scoped_timer: stops the timer at the end of the scope, and waits for its callback.
// Throws nothing from its destructor. Thread safety: that of vigil::scoped_timer.
// Lifetime: that of vigil::scoped_timer. Shutdown: that of vigil::scoped_timer. Cost:
// that of wall::timer.
using scoped_timer = detail::scoped_handle<timer>;

// Parks the calling fiber until the wall clock reads t; returns at once if it has passed.
// time_point::max() is never reached. With a context it throws `cancelled` when ctx is
// done, unless t has passed. Throws as vigil::sleep_until does, and std::system_error if
// there is no descriptor or no thread to hear of steps. Thread safety: any fiber.
// Shutdown: that of vigil::sleep_for. Cost: that of wall::timer.
template <time_point_on<wall_clock> Time>
void sleep_until(const Time& t) {
  detail::sleep_on(wall_clock::kind, detail::to_nanos(t.time_since_epoch()), detail::no_limit);
}

// The same with a context.
template <time_point_on<wall_clock> Time>
void sleep_until(const Time& t, const context& ctx) {
  detail::sleep_on(
      wall_clock::kind, detail::to_nanos(t.time_since_epoch()), detail::cancelled_by(ctx));
}

// Runs f once on a fiber when the wall clock reads t; as soon as possible if it has
// passed. f may take its timer, [](vigil::wall::timer& self). Throws what
// vigil::after_func throws, and std::system_error as sleep_until. Thread safety: that of
// vigil::after_func. Lifetime: that of vigil::after_func, with a wall::scoped_timer.
// Shutdown: that of vigil::after_func. Cost: that of wall::timer.
template <time_point_on<wall_clock> Time, class F>
  requires detail::timer_function<F, timer>
timer after_func_at(const Time& t, F&& f, const site& from = site::current()) {
  const std::int64_t when = detail::to_nanos(t.time_since_epoch());  // before f is moved from
  return timer(when, detail::timer_callback<timer>(std::forward<F>(f)), from);
}

}  // namespace wall

// Boot time: the same, with time points of boot_clock.
namespace boot {

// timer: a clock_timer on boot time, with all that is said there.
using timer = clock_timer<boot_clock>;

// scoped_timer: as wall::scoped_timer. Throws nothing from its destructor. Thread safety:
// that of vigil::scoped_timer. Lifetime: that of vigil::scoped_timer. Shutdown: that of
// vigil::scoped_timer. Cost: that of boot::timer.
using scoped_timer = detail::scoped_handle<timer>;

// Parks the calling fiber until boot_clock reads t. Otherwise as wall::sleep_until.
// Throws what that throws. Thread safety: any fiber. Shutdown: that of vigil::sleep_for.
// Cost: that of boot::timer.
template <time_point_on<boot_clock> Time>
void sleep_until(const Time& t) {
  detail::sleep_on(boot_clock::kind, detail::to_nanos(t.time_since_epoch()), detail::no_limit);
}

template <time_point_on<boot_clock> Time>
void sleep_until(const Time& t, const context& ctx) {
  detail::sleep_on(
      boot_clock::kind, detail::to_nanos(t.time_since_epoch()), detail::cancelled_by(ctx));
}

// Parks the calling fiber for at least d, time in suspend included; returns at once if d
// is zero or negative. Throws what boot::sleep_until throws. Thread safety: any fiber.
// Shutdown: that of vigil::sleep_for. Cost: that of boot::timer.
template <detail::duration_argument D>
void sleep_for(const D& d) {
  detail::sleep_on(
      boot_clock::kind, detail::after(boot_clock::kind, detail::to_nanos(d)), detail::no_limit);
}

template <detail::duration_argument D>
void sleep_for(const D& d, const context& ctx) {
  detail::sleep_on(boot_clock::kind,
                   detail::after(boot_clock::kind, detail::to_nanos(d)),
                   detail::cancelled_by(ctx));
}

// Runs f once on a fiber when boot_clock reads t. Otherwise as wall::after_func_at.
// Throws what that throws. Thread safety: that of vigil::after_func. Lifetime: that of
// vigil::after_func, with a boot::scoped_timer. Shutdown: that of vigil::after_func.
// Cost: that of boot::timer.
template <time_point_on<boot_clock> Time, class F>
  requires detail::timer_function<F, timer>
timer after_func_at(const Time& t, F&& f, const site& from = site::current()) {
  const std::int64_t when = detail::to_nanos(t.time_since_epoch());  // before f is moved from
  return timer(when, detail::timer_callback<timer>(std::forward<F>(f)), from);
}

}  // namespace boot

// aligned_ticker: sends a tick on its channel whenever the wall clock reads a multiple of
// the period since 1970-01-01 00:00 UTC: each full second, hour, or day of UTC. Made by
// ticker::aligned(period). Each value is that multiple.
//
// A late receiver gets one tick, that of the last full period; those before it are
// dropped and counted. The same holds after a step forwards over several periods. After a
// step backwards the next tick is the next full period, so a value may come twice.
//
// It is a handle as ticker is. Thread safety: that of ticker. Lifetime: that of ticker.
// Shutdown: that of ticker. Cost: that of wall::timer.
class aligned_ticker {
 public:
  // Makes an empty handle: stop() is false, reset() throws std::logic_error.
  aligned_ticker() noexcept = default;

  // Throws std::invalid_argument for a period of zero or less, and what wall::timer
  // throws.
  template <detail::duration_argument D>
  explicit aligned_ticker(const D& period)
      : channel_(detail::channel_handle(detail::make_aligned(detail::to_nanos(period)))) {}

  explicit operator bool() const noexcept { return static_cast<bool>(channel_); }

  receiver<wall_clock::time_point> channel() const noexcept { return channel_; }

  // As ticker::stop().
  bool stop() const noexcept {
    return channel_.core() != nullptr && detail::stop_clock_timer(channel_.core());
  }

  // Ticks at full multiples of `period` from now on; an unreceived tick is gone. Returns
  // whether it was ticking. Throws what the constructor throws, and runtime_gone.
  template <detail::duration_argument D>
  bool reset(const D& period) const {
    if (channel_.core() == nullptr) detail::throw_empty_clock_timer();
    return detail::reset_aligned(channel_.core(), detail::to_nanos(period));
  }

  // When the next tick is due, or was due if it has not been received yet;
  // time_point::max() if the ticker is stopped.
  wall_clock::time_point deadline() const noexcept {
    return wall_clock::time_point(std::chrono::nanoseconds(
        channel_.core() == nullptr ? INT64_MAX : detail::deadline_on_clock(channel_.core())));
  }

  // The number of ticks dropped so far, counted when the one after them is received.
  std::uint64_t missed() const noexcept {
    return channel_.core() == nullptr ? 0 : detail::missed_on_clock(channel_.core());
  }

 private:
  receiver<wall_clock::time_point> channel_;
};

template <detail::duration_argument D>
aligned_ticker ticker::aligned(const D& period) {
  return aligned_ticker(period);
}

}  // namespace VIGIL_PUBLIC
