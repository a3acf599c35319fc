// Timers: one that hands the time to a channel, and one that calls a function.
//
//   vigil::timer deadline(1s);
//   vigil::select(vigil::on_recv(lines, ...), vigil::on_recv(deadline.channel(), ...));
//   deadline.reset(1s);
//
//   vigil::timer later = vigil::after_func(1s, [] { ... });
//
// A pending timer costs no fiber, no thread and no stack. A callback runs on a
// fiber of its runtime, never on the timer fiber, so a slow one delays no other. A
// channel's timer is in the heap only while a receiver waits on it; otherwise the
// receive finds the value by the clock.
//
// Behaviour: Go's timers since 1.23. After stop() or reset() has returned,
// nothing of the earlier arming can be received or started, and nothing ever
// has to be drained.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/time.hpp>

#include <chrono>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace vigil::inline VIGIL_ABI {

namespace detail {

class timer_record;

VIGIL_API timer_record* after_func(std::int64_t delay, callback f, const site& from);
// In the runtime of that scheduler.
VIGIL_API timer_record* after_func_in(void* sched,
                                      std::int64_t delay,
                                      callback f,
                                      const site& from);
VIGIL_API timer_record* every(std::int64_t period, bool from_end, callback f, const site& from);
VIGIL_API void add_handle(timer_record* record) noexcept;
VIGIL_API void drop_handle(timer_record* record) noexcept;
VIGIL_API bool stop(timer_record* record) noexcept;
// Waits: throws stopped, wrong_place.
VIGIL_API bool stop_and_wait(timer_record* record, const wait_limit& limit);
VIGIL_API bool reset(timer_record* record, std::int64_t delay);
VIGIL_API bool reset_at(timer_record* record, std::int64_t deadline);
VIGIL_API std::int64_t deadline_of(const timer_record* record) noexcept;
VIGIL_API std::int64_t remaining(const timer_record* record) noexcept;
VIGIL_API void set_referenced(timer_record* record, bool on) noexcept;
VIGIL_API bool is_referenced(const timer_record* record) noexcept;
VIGIL_API void set_slack(timer_record* record, std::int64_t slack);

VIGIL_API bool stop(channel_core* timer) noexcept;
VIGIL_API bool reset(channel_core* timer, std::int64_t delay);
VIGIL_API bool reset_at(channel_core* timer, std::int64_t deadline);
VIGIL_API std::int64_t deadline_of(const channel_core* timer) noexcept;
VIGIL_API std::int64_t remaining(const channel_core* timer) noexcept;
VIGIL_API void set_slack(channel_core* timer, std::int64_t slack);
// Waits: throws nothing.
VIGIL_API void stop_for_scope(timer_record* record) noexcept;

}  // namespace detail

// A handle to a timer. Copies name the same timer, as in Go. Dropping the last
// handle of a callback's timer lets it run (see scoped_timer); of a channel's
// timer it frees it, but a receiver of its channel is a handle too.
//
// The captures of a callback die as soon as the timer is neither pending nor
// running and the last handle is gone, in the thread that makes this true.
//
// Thread safety: all members may be called from any thread at any time, on the
// same timer too; of concurrent resets the last to return decides. They may
// outlive the runtime: stop() is false then, reset() throws runtime_gone.
class timer {
 public:
  // An empty handle: stop() is false, reset() throws std::logic_error.
  timer() noexcept = default;

  // Hands its deadline to its channel, d from now; zero or negative: at once.
  // Throws wrong_place on a thread without a runtime, std::bad_alloc.
  template <detail::duration_like D>
  explicit timer(const D& d)
      : channel_(detail::channel_handle(detail::make_timer("timer", detail::to_nanos(d)))) {}

  template <detail::time_point_like Time>
  explicit timer(const Time& t)
      : channel_(detail::channel_handle(detail::make_timer_at("timer", detail::to_deadline(t)))) {}

  timer(const timer& other) noexcept : record_(other.record_), channel_(other.channel_) {
    if (record_ != nullptr) detail::add_handle(record_);
  }

  timer(timer&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)), channel_(std::move(other.channel_)) {}

  timer& operator=(timer other) noexcept {
    std::swap(record_, other.record_);
    std::swap(channel_, other.channel_);
    return *this;
  }

  ~timer() {
    if (record_ != nullptr) detail::drop_handle(record_);
  }

  explicit operator bool() const noexcept { return record_ != nullptr || core() != nullptr; }

  // Where the deadline is received, exactly, however late that is. Its size and
  // capacity are 0. For callback timers and empty handles this is a nil channel,
  // which is never ready. stop() does not close it: a waiter waits on, until a
  // reset(). The end of the runtime closes it, even while a plain thread waits on
  // it. Between two runs of one runtime object nothing fires: a waiter waits for
  // the next run.
  timer_receiver channel() const noexcept { return channel_; }

  // Stops the timer. True exactly if that prevented something: of a channel's
  // timer, the value of this arming has not been received, and cannot be any
  // more; of a callback's, its run has not started, and will not. False if it
  // was not pending. Does not wait for a callback that is running. O(1), no
  // lock of the heap. Keeps the callback; reset() starts the timer again.
  bool stop() const noexcept {
    if (record_ != nullptr) return detail::stop(record_);
    return core() != nullptr && detail::stop(core());
  }

  // stop(), then waits until a callback that is running has ended. Inside that
  // callback itself it throws wrong_place, since it would wait for itself.
  // From a fiber or a plain thread.
  bool stop_and_wait() const { return stop_within(detail::no_limit); }

  // Waits at most until ctx is done: then throws `cancelled`. The timer has been
  // stopped; its callback may still be running.
  bool stop_and_wait(const context& ctx) const { return stop_within(detail::cancelled_by(ctx)); }

  // Gives the timer a new deadline, d from now; for a periodic one d is the
  // new period too (zero or negative: std::invalid_argument). Returns whether
  // it was still pending, as stop() does: then the earlier arming is gone.
  // Zero or negative: as soon as possible. A later deadline than the one in
  // force costs no heap operation. May be called inside the callback. Throws
  // std::bad_alloc if the heap cannot grow (the timer is then as it was).
  template <detail::duration_like D>
  bool reset(const D& d) const {
    if (core() != nullptr) return detail::reset(core(), detail::to_nanos(d));
    return detail::reset(record_, detail::to_nanos(d));
  }

  // The same with an absolute deadline; not for periodic timers
  // (std::logic_error).
  template <detail::time_point_like Time>
  bool reset(const Time& t) const {
    const std::int64_t deadline = detail::to_deadline(t);
    if (core() != nullptr) return detail::reset_at(core(), deadline);
    return detail::reset_at(record_, deadline);
  }

  // The deadline in force; time_point::max() if nothing is pending. Inside the
  // callback of every(): the next run.
  clock::time_point deadline() const noexcept {
    return clock::time_point(clock::duration(record_ != nullptr  ? detail::deadline_of(record_)
                                             : core() != nullptr ? detail::deadline_of(core())
                                                                 : INT64_MAX));
  }

  // The time until then: 0 when it is due, duration::max() if not pending.
  clock::duration remaining() const noexcept {
    return clock::duration(record_ != nullptr  ? detail::remaining(record_)
                           : core() != nullptr ? detail::remaining(core())
                                               : INT64_MAX);
  }

  // Whether the pending timer keeps a program with exit_when::all_done alive. A
  // flag, not a count; after_func and every() set it. A channel's timer never does:
  // the fiber that waits on the channel keeps the program alive.
  void ref() const noexcept {
    if (record_ != nullptr) detail::set_referenced(record_, true);
  }

  void unref() const noexcept {
    if (record_ != nullptr) detail::set_referenced(record_, false);
  }

  bool has_ref() const noexcept { return record_ != nullptr && detail::is_referenced(record_); }

  // Lets the timer fire between its deadline and slack later, so that it can
  // share a wake-up with others. Counts from the next arming at the latest; an
  // arming that is pending may or may not use it. Negative: 0; at most 71
  // minutes, kept in whole microseconds.
  template <detail::duration_like D>
  void set_slack(const D& slack) const {
    const std::int64_t length = detail::to_nanos(slack);
    if (record_ != nullptr) detail::set_slack(record_, length);
    if (core() != nullptr) detail::set_slack(core(), length);
  }

  // Made by after_func and every().
  explicit timer(detail::timer_record* record) noexcept : record_(record) {}

 private:
  friend class scoped_timer;

  bool stop_within(const detail::wait_limit& limit) const {
    return record_ != nullptr ? detail::stop_and_wait(record_, limit) : stop();
  }

  detail::channel_core* core() const noexcept { return channel_.core(); }

  detail::timer_record* record_ = nullptr;
  timer_receiver channel_;
};

// Runs f on a fiber of the current runtime, d from now, once; zero or
// negative: as soon as possible. The handle may be dropped. An exception that
// leaves f goes to options::on_unhandled. Throws std::invalid_argument for an
// empty function, wrong_place on a thread without a runtime (use
// runtime::after_func there), std::bad_alloc.
template <detail::duration_like D, class F>
  requires std::is_invocable_v<std::decay_t<F>&>
timer after_func(const D& d, F&& f, const site& from = site::current()) {
  const std::int64_t length = detail::to_nanos(d);  // before f is moved from
  return timer(detail::after_func(length, detail::callback(std::forward<F>(f)), from));
}

// A timer that ends with its scope: the destructor stops it, and waits for a
// callback that is running (but not inside that callback itself), so that the
// callback may refer to what the scope holds. A stop of the fiber does not cut
// that wait short. On a plain thread it waits, too.
class [[nodiscard]] scoped_timer {
 public:
  scoped_timer() noexcept = default;

  // NOLINTNEXTLINE(google-explicit-constructor)
  [[nodiscard]] scoped_timer(timer t) noexcept : timer_(std::move(t)) {}

  scoped_timer(scoped_timer&& other) noexcept = default;

  scoped_timer& operator=(scoped_timer&& other) noexcept {
    if (this != &other) {
      end();
      timer_ = std::move(other.timer_);
    }
    return *this;
  }

  ~scoped_timer() { end(); }

  timer* operator->() noexcept { return &timer_; }

  timer& operator*() noexcept { return timer_; }

  const timer& get() const noexcept { return timer_; }

  // Gives the timer away: it is not stopped.
  timer release() noexcept { return std::move(timer_); }

 private:
  void end() noexcept {
    timer_.stop();
    if (timer_.record_ != nullptr) detail::stop_for_scope(timer_.record_);
  }

  timer timer_;
};

}  // namespace vigil::inline VIGIL_ABI
