// Timers: `timer` sends its deadline on a channel, after_func calls a function.
//
//   vigil::timer deadline(1s);
//   vigil::select(vigil::on_recv(lines, ...), vigil::on_recv(deadline.channel(), ...));
//   deadline.reset(1s);
//
//   vigil::scoped_timer later = vigil::after_func(1s, [&] { ... });
//
// A dropped `timer` runs on: its callback is still called. A scoped_timer stops it, and
// so belongs to a callback that refers to variables of a scope, or to members of an
// object, whose last member it is.
//
// A callback runs on a fiber of its runtime, so a slow one delays no other timer.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/handle.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/detail/scoped_handle.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/post.hpp>
#include <vigil/time.hpp>

#include <chrono>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

namespace detail {

class scheduler;
class timer_record;

VIGIL_API timer_record* after_func(std::int64_t delay, callback f, const site& from);
// The same for the runtime of that scheduler.
VIGIL_API timer_record* after_func_in(scheduler& sched,
                                      std::int64_t delay,
                                      callback f,
                                      const site& from);
VIGIL_API timer_record* every(std::int64_t period, bool from_end, callback f, const site& from);
VIGIL_API void retain(timer_record* record) noexcept;
VIGIL_API void release(timer_record* record) noexcept;
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
// The timer whose callback the calling fiber is in; the caller gets a handle.
VIGIL_API timer_record* running_timer() noexcept;

// Names the timer whose callback the calling fiber is in.
struct running_timer_t {};

VIGIL_API bool stop(channel_core* timer) noexcept;
VIGIL_API bool reset(channel_core* timer, std::int64_t delay);
VIGIL_API bool reset_at(channel_core* timer, std::int64_t deadline);
VIGIL_API std::int64_t deadline_of(const channel_core* timer) noexcept;
VIGIL_API std::int64_t remaining(const channel_core* timer) noexcept;
VIGIL_API void set_slack(channel_core* timer, std::int64_t slack);

}  // namespace detail

// timer: a handle to a timer. Copies name the same timer, as in Go. After stop() or
// reset() has returned, no value of the earlier arming can be received, no callback of it
// can start, and nothing has to be drained. Behaviour: Go's timers since 1.23.
//
// Lifetime: dropping the last handle of a callback's timer stops nothing, and the
// callback still runs; a channel's timer is freed with its last handle, and a receiver of
// its channel counts as one. A handle may outlive the runtime: then stop() is false, and
// reset() throws runtime_gone.
//
// Lifetime: the captures of a callback are destroyed as soon as the timer is neither
// pending nor running and the last handle is gone, in the thread that makes this true; at
// the latest by the end of the runtime object. A callback that owns a handle of its own
// timer is a cycle: let it take the timer or capture a weak_ptr, or end the cycle by
// `t.stop(); t = {}`.
//
// Thread safety: stop, reset and the other members may be called from any thread at any
// time, even on the same timer; of concurrent resets any one may win. Assigning a handle
// that others use at that time is a data race.
//
// Shutdown: callbacks go on during options::grace. One that has not started when waits
// begin to throw `stopped` never does, and its captures die on the main fiber before
// run() returns. Cost: while pending, no fiber, thread or stack. stop() and a later
// reset() are O(1); a channel's timer is in the heap only while a receiver waits on it.
class timer {
 public:
  // Makes an empty handle: stop() is false, reset() throws std::logic_error.
  timer() noexcept = default;

  // Makes a timer that sends its deadline on its channel, d from now; at once if d is
  // zero or negative. Throws wrong_place on a thread without a runtime, and
  // std::bad_alloc.
  template <detail::duration_argument D>
  explicit timer(const D& d)
      : channel_(detail::channel_handle(detail::make_timer("timer", detail::to_nanos(d)))) {}

  template <detail::time_point_like Time>
  explicit timer(const Time& t)
      : channel_(detail::channel_handle(detail::make_timer_at("timer", detail::to_deadline(t)))) {}

  timer(const timer&) noexcept = default;
  timer(timer&&) noexcept = default;

  // The old callback is dropped last: its captures may own this timer.
  timer& operator=(timer other) noexcept {
    std::swap(record_, other.record_);
    std::swap(channel_, other.channel_);
    return *this;
  }

  ~timer() = default;

  explicit operator bool() const noexcept { return record_ || core() != nullptr; }

  // The channel on which the deadline is received, exactly, however late that is. Its
  // size and capacity are 0. For callback timers and empty handles this is a nil channel,
  // which is never ready.
  //
  // A receiver continues to wait across stop() and reset(); only the end of the runtime
  // closes the channel, even for a plain thread that waits on it. Between two runs of a
  // runtime nothing fires, so a receiver waits for the next run.
  timer_receiver channel() const noexcept { return channel_; }

  // Stops the timer. Returns true exactly if that prevented something: the value of this
  // arming had not been received, and can no longer be; or the callback had not started,
  // and will not. Returns false if the timer was not pending. Does not wait for a running
  // callback, which may reset() the timer. Cost: O(1), without the lock of the heap.
  bool stop() const noexcept {
    if (record_) return detail::stop(record_.get());
    return core() != nullptr && detail::stop(core());
  }

  // Calls stop(), then waits until a running callback has ended. An arming by that
  // callback meanwhile is stopped, and its reset() returns false. Returns true if
  // anything was prevented. Afterwards only a reset() by others starts the timer again.
  // Inside that callback it throws wrong_place, since it would wait for itself. May be
  // called on a fiber or a plain thread.
  bool stop_and_wait() const { return stop_within(detail::no_limit); }

  // The same; throws `cancelled` when ctx is done. The timer is stopped then, but its
  // callback may still be running, and arms nothing any more.
  bool stop_and_wait(const context& ctx) const { return stop_within(detail::cancelled_by(ctx)); }

  // Gives the timer a new deadline, d from now (as soon as possible if d is zero or
  // negative), and returns whether it was still pending, as stop() does; the earlier
  // arming is then gone. For a periodic timer d is also the new period, and
  // std::invalid_argument is thrown if it is zero or negative. A later deadline than the
  // current one costs no heap operation. May be called inside the callback. Throws
  // std::bad_alloc if the heap cannot grow; the timer is then unchanged.
  template <detail::duration_argument D>
  bool reset(const D& d) const {
    if (core() != nullptr) return detail::reset(core(), detail::to_nanos(d));
    return detail::reset(record_.get(), detail::to_nanos(d));
  }

  // The same with an absolute deadline. Throws std::logic_error for a periodic timer.
  template <detail::time_point_like Time>
  bool reset(const Time& t) const {
    const std::int64_t deadline = detail::to_deadline(t);
    if (core() != nullptr) return detail::reset_at(core(), deadline);
    return detail::reset_at(record_.get(), deadline);
  }

  // The current deadline; time_point::max() if nothing is pending. Inside the callback of
  // every() it is the next run.
  clock::time_point deadline() const noexcept {
    return clock::time_point(clock::duration(record_ ? detail::deadline_of(record_.get())
                                             : core() != nullptr ? detail::deadline_of(core())
                                                                 : INT64_MAX));
  }

  // The time until deadline(): 0 if it is due, duration::max() if nothing is pending.
  clock::duration remaining() const noexcept {
    return clock::duration(record_             ? detail::remaining(record_.get())
                           : core() != nullptr ? detail::remaining(core())
                                               : INT64_MAX);
  }

  // ref() and unref() set whether the timer, while it is pending, keeps a program with
  // exit_when::all_done alive. This is a flag, not a count; after_func and every() set
  // it. A channel's timer never keeps the program alive: the fiber that waits on the
  // channel does.
  void ref() const noexcept {
    if (record_) detail::set_referenced(record_.get(), true);
  }

  void unref() const noexcept {
    if (record_) detail::set_referenced(record_.get(), false);
  }

  bool has_ref() const noexcept { return record_ && detail::is_referenced(record_.get()); }

  // Lets the timer fire up to `slack` after its deadline, so that it can share a wake-up
  // with others. Takes effect with the next arming at the latest. A negative slack means
  // 0; the largest is 71 minutes. Kept in whole microseconds.
  template <detail::duration_argument D>
  void set_slack(const D& slack) const {
    const std::int64_t length = detail::to_nanos(slack);
    if (record_) detail::set_slack(record_.get(), length);
    if (core() != nullptr) detail::set_slack(core(), length);
  }

  // For after_func and every() only.
  explicit timer(detail::timer_record* record) noexcept : record_(record) {}

  // For callbacks that take their timer.
  explicit timer(detail::running_timer_t) noexcept : record_(detail::running_timer()) {}

 private:
  template <class Handle>
  friend class detail::scoped_handle;

  const detail::timer_record* record() const noexcept { return record_.get(); }

  bool stop_within(const detail::wait_limit& limit) const {
    return record_ ? detail::stop_and_wait(record_.get(), limit) : stop();
  }

  detail::channel_core* core() const noexcept { return channel_.core(); }

  detail::handle<detail::timer_record> record_;
  timer_receiver channel_;
};

namespace detail {

// A callback: it is called with its timer only if it cannot be called without arguments.
template <class F, class Timer>
concept timer_function =
    std::is_invocable_v<std::decay_t<F>&> || std::is_invocable_v<std::decay_t<F>&, Timer&>;

template <class Timer, class F>
struct call_with_timer {
  F f;

  void operator()() {
    Timer self{running_timer_t()};
    static_cast<void>(f(self));
  }
};

template <class Timer, class F>
callback timer_callback(F&& f) {
  if constexpr (std::is_invocable_v<std::decay_t<F>&>) {
    return callback(std::forward<F>(f));
  } else {
    static_assert(timer_function<F, Timer>,
                  VIGIL_WANTS_PLAIN_FUNCTION ", or [](vigil::timer& self) { ... }");
    if (is_empty_function(f)) return callback();
    return callback(call_with_timer<Timer, std::decay_t<F>>{std::forward<F>(f)});
  }
}

}  // namespace detail

// Runs f once on a fiber of the current runtime, d from now; as soon as possible if d is
// zero or negative. The handle may be dropped. f may take its timer, as in
// [](vigil::timer& self) { ... }, and so need not own a handle of it. An exception that
// leaves f goes to options::on_unhandled. Throws std::invalid_argument for an empty
// function, wrong_place on a thread without a runtime (use runtime::after_func there),
// and std::bad_alloc. Thread safety: any fiber; f runs on any worker, beside other fibers
// and callbacks. Lifetime: f and its captures are those of `timer`; if they refer to a
// scope, keep a scoped_timer there. Shutdown: that of timer. Cost: no allocation for
// captures of up to 40 bytes, as the record comes from a pool; O(log n) to file it.
// Behaviour: Go's time.AfterFunc, and Node's setTimeout; never early.
template <detail::duration_like D, class F>
  requires detail::timer_function<F, timer>
timer after_func(const D& d, F&& f, const site& from = site::current()) {
  const std::int64_t length = detail::to_nanos(d);  // before f is moved from
  return timer(detail::after_func(length, detail::timer_callback<timer>(std::forward<F>(f)), from));
}

void after_func(detail::write_a_duration_such_as_5ms, ...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

template <detail::duration_like D, class write = detail::f_is_called_without_arguments>
void after_func(const D&, ...) VIGIL_REFUSED(VIGIL_WANTS_PLAIN_FUNCTION);

// Runs f as post(f) does, and returns its timer: stop() is true exactly if f has not
// begun and never will, so it is false inside f and afterwards. The handle may be
// dropped. reset(d) makes f run d from now; unref() lets a program with
// exit_when::all_done end without f. Throws what post() throws.
template <class F>
  requires detail::timer_function<F, timer>
timer post(F&& f, stoppable_t, const site& from = site::current()) {
  return timer(detail::post(detail::timer_callback<timer>(std::forward<F>(f)), from, true));
}

// The same for defer(f). The timer may be stopped by any fiber or thread.
template <class F>
  requires detail::timer_function<F, timer>
timer defer(F&& f, stoppable_t, const site& from = site::current()) {
  return timer(detail::defer(detail::timer_callback<timer>(std::forward<F>(f)), from, true));
}

// scoped_timer: stops a timer at the end of the scope and waits for a running callback
// (unless the scope ends inside that callback), so that the callback may refer to
// variables of the scope. A stop of the fiber does not end that wait. On a plain thread
// it blocks the thread. Throws nothing from its destructor. Thread safety: one fiber or
// thread at a time. Lifetime: it is declared after what the callback uses, and as a
// member comes last. Shutdown: the destructor waits even then; options::stop_limit
// counts. Cost: that of timer::stop(), if no callback is running.
using scoped_timer = detail::scoped_handle<timer>;

}  // namespace VIGIL_PUBLIC
