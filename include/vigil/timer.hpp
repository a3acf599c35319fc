// Timers that call a function: after_func and its handle.
//
// A pending timer costs no fiber, no thread and no stack. Its callback runs on
// a fiber of its own runtime, never on the timer fiber, so a slow one delays
// nobody.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/time.hpp>

#include <chrono>
#include <cstdint>
#include <utility>

namespace vigil {
inline namespace VIGIL_ABI {

namespace detail {

class timer_record;

VIGIL_API timer_record* after_func(std::int64_t delay, callback f, const site& from);
VIGIL_API timer_record* every(std::int64_t period, bool from_end, callback f,
                              const site& from);
VIGIL_API void add_handle(timer_record* record) noexcept;
VIGIL_API void drop_handle(timer_record* record) noexcept;
VIGIL_API bool stop(timer_record* record) noexcept;
VIGIL_API bool stop_and_wait(timer_record* record);
VIGIL_API bool reset(timer_record* record, std::int64_t delay);
VIGIL_API bool reset_at(timer_record* record, std::int64_t deadline);
VIGIL_API std::int64_t deadline_of(const timer_record* record) noexcept;
VIGIL_API std::int64_t remaining(const timer_record* record) noexcept;
VIGIL_API void set_referenced(timer_record* record, bool on) noexcept;
VIGIL_API bool is_referenced(const timer_record* record) noexcept;
VIGIL_API void set_slack(timer_record* record, std::int64_t slack);

}  // namespace detail

// A handle to a timer. Copies name the same timer, as in Go. Dropping the last
// handle of a pending timer lets it run; scoped ownership is what `stop()` in
// a destructor is for.
//
// The captures of the callback die as soon as the timer is neither pending nor
// running and the last handle is gone, in the thread that makes this true.
//
// Thread safety: all members may be called from any thread at any time, on the
// same timer too; of concurrent resets the last to return decides. They may
// outlive the runtime: stop() is false then, reset() throws runtime_gone.
class timer {
 public:
  // An empty handle: stop() is false, reset() throws std::logic_error.
  timer() noexcept = default;

  timer(const timer& other) noexcept : record_(other.record_) {
    if (record_ != nullptr) detail::add_handle(record_);
  }

  timer(timer&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}

  timer& operator=(timer other) noexcept {
    std::swap(record_, other.record_);
    return *this;
  }

  ~timer() {
    if (record_ != nullptr) detail::drop_handle(record_);
  }

  explicit operator bool() const noexcept { return record_ != nullptr; }

  // Stops the timer. True exactly if that prevented a run: the callback of
  // this arming has not started, and will not. False if it had started,
  // finished, or was not pending. Does not wait for a callback that is
  // running. O(1), no lock of the heap. Keeps the callback; reset() starts
  // the timer again.
  bool stop() noexcept { return record_ != nullptr && detail::stop(record_); }

  // stop(), then waits until a callback that is running has ended. Inside that
  // callback itself it throws wrong_place, since it would wait for itself.
  // From a fiber or a plain thread.
  bool stop_and_wait() { return record_ != nullptr && detail::stop_and_wait(record_); }

  // Gives the timer a new deadline, d from now; for a periodic one d is the
  // new period too (zero or negative: std::invalid_argument). Returns whether
  // it was still pending: then the earlier arming is gone and will not run.
  // Zero or negative: runs as soon as possible. A later deadline than the one
  // in force costs no heap operation. May be called inside the callback.
  // Throws std::bad_alloc if the heap cannot grow (the timer is then as it
  // was).
  template <detail::duration_like D>
  bool reset(const D& d) {
    return detail::reset(record_, detail::to_nanos(d));
  }

  // The same with an absolute deadline; not for periodic timers
  // (std::logic_error).
  template <class Clock, class Duration>
  bool reset(const std::chrono::time_point<Clock, Duration>& t) {
    return detail::reset_at(record_, deadline_at(t).time_since_epoch().count());
  }

  // When it runs next; time_point::max() if it is not pending. Inside the
  // callback of every(): the next run.
  clock::time_point deadline() const noexcept {
    return clock::time_point(clock::duration(record_ == nullptr ? INT64_MAX
                                                                 : detail::deadline_of(record_)));
  }

  // The time until then: 0 when it is due, duration::max() if not pending.
  clock::duration remaining() const noexcept {
    return clock::duration(record_ == nullptr ? INT64_MAX : detail::remaining(record_));
  }

  // Whether the pending timer keeps a program with exit_when::all_done alive.
  // A flag, not a count; after_func and every() set it.
  void ref() noexcept {
    if (record_ != nullptr) detail::set_referenced(record_, true);
  }
  void unref() noexcept {
    if (record_ != nullptr) detail::set_referenced(record_, false);
  }
  bool has_ref() const noexcept { return record_ != nullptr && detail::is_referenced(record_); }

  // Lets the timer fire between its deadline and slack later, so that it can
  // share a wake-up with others. Counts from the next arming at the latest; an
  // arming that is pending may or may not use it. Negative: 0; at most 71
  // minutes, kept in whole microseconds.
  template <detail::duration_like D>
  void set_slack(const D& slack) {
    if (record_ != nullptr) detail::set_slack(record_, detail::to_nanos(slack));
  }

  // Made by after_func and every().
  explicit timer(detail::timer_record* record) noexcept : record_(record) {}

 private:
  detail::timer_record* record_ = nullptr;
};

// Runs f on a fiber of the current runtime, d from now, once; zero or
// negative: as soon as possible. The handle may be dropped. An exception that
// leaves f goes to options::on_unhandled. Throws std::invalid_argument for an
// empty function, wrong_place on a thread without a runtime (use
// runtime::after_func there), std::bad_alloc.
template <detail::duration_like D, class F>
requires std::is_invocable_v<std::decay_t<F>&>
timer after_func(const D& d, F&& f,
                 const site& from = site::current()) {
  return timer(detail::after_func(
      detail::to_nanos(d), detail::callback(std::forward<F>(f)), from));
}

}  // namespace VIGIL_ABI
}  // namespace vigil
