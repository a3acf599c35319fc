// Contexts end work that is spread over fibers and calls, together and in time.
//
//   auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 1s);
//   vigil::go([ctx = ctx] { serve(ctx); });   // waits in there: lines.recv(ctx)
//   cancel();                                 // at the latest after a second
//
// A context is made from a parent. It is done when its cancel function is called, when
// its deadline has passed, or when its parent is done. The caller passes it to a wait
// (`recv(ctx)`, `sleep_for(d, ctx)`, `join(ctx)`, a select with `on_done(ctx, f)`), which
// throws `cancelled` once the context is done. A call that need not wait still succeeds.
// A call that is given no context is not cancelled by one.
//
// Cancelling is synchronous: when the cancel function returns, the context and all
// contexts made from it are done, even if another thread cancels some of them at the same
// moment. The first canceller makes each waiter ready; it runs when scheduled.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/clock.hpp>
#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/handle.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/detail/scoped_handle.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/error.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <system_error>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

namespace detail {

class context_core;
class done_registration;

VIGIL_API void retain(context_core* c) noexcept;
VIGIL_API void release(context_core* c) noexcept;
VIGIL_API void retain(done_registration* r) noexcept;
VIGIL_API void release(done_registration* r) noexcept;

using context_handle = handle<context_core>;

// These throw std::invalid_argument, with the name of the call, for a null core.
VIGIL_API bool is_done(const context_core* c);
VIGIL_API std::error_code error_of(const context_core* c);
VIGIL_API std::exception_ptr cause_of(const context_core* c);
VIGIL_API std::int64_t deadline_of_context(const context_core* c);
VIGIL_API const void* value_of(const context_core* c, const void* key);

VIGIL_API context_core* background();
VIGIL_API context_core* with_cancel(context_core* parent, const site& from);
VIGIL_API context_core* with_deadline(context_core* parent,
                                      std::int64_t deadline,
                                      std::exception_ptr cause,
                                      const site& from);
VIGIL_API context_core* without_cancel(context_core* parent);
// Takes ownership of the value, even if it throws.
VIGIL_API context_core* with_value(context_core* parent,
                                   const void* key,
                                   void* value,
                                   void (*destroy)(void*) noexcept);
VIGIL_API void cancel(context_core* c, const std::exception_ptr& cause) noexcept;
VIGIL_API done_registration* after_func(context_core* c, callback f, const site& from);
VIGIL_API bool stop(done_registration* r) noexcept;
// Waits: throws stopped, wrong_place.
VIGIL_API bool stop_and_wait(done_registration* r, const wait_limit& limit);
VIGIL_API const timer_record* record_of(const done_registration* r) noexcept;

}  // namespace detail

// context_key<T>: a key for with_value, identified by its address. Throws nothing. Thread
// safety: it has no state. Lifetime: declare it with static storage. Go: the key of
// WithValue.
template <class T>
class context_key {
 public:
  constexpr context_key() noexcept = default;
  context_key(const context_key&) = delete;
  context_key& operator=(const context_key&) = delete;

 private:
  [[maybe_unused]] char different_addresses_ = 0;
};

// context: tells fibers and calls that their work is no longer wanted. The object is a
// cheap handle; copies name the same context. Throws std::invalid_argument from members
// of a nil context. Thread safety: everything may be called from fibers of any runtime
// and from plain threads at any time, even after the runtime has gone. Lifetime: a
// context keeps its parent, and leaves it when it is done or when its last handle goes;
// then its timer stops. Its cancel function, a receiver of done(), a context made from
// it, a pending after_func and the done_callback that it returned count as handles.
// Shutdown: those made from background() of a fiber are done as it begins. Cost:
// is_done() is a load; done(), no allocation. Behaviour: Go's package context.
class context {
 public:
  // Makes a nil context, which names none. Its members, and calls that are given it,
  // throw std::invalid_argument.
  context() noexcept = default;

  explicit operator bool() const noexcept { return handle_.get() != nullptr; }

  // Closed when the context is done; a nil channel if it is never done. The receiver
  // keeps the context alive.
  receiver<void> done() const {
    return receiver<void>(detail::channel_handle(detail::done_of(*this)));
  }

  bool is_done() const { return detail::is_done(handle_.get()); }

  // Why it is done: equivalent to std::errc::timed_out if a deadline has passed (its own
  // or an ancestor's), otherwise to std::errc::operation_canceled. No error while it is
  // not done.
  std::error_code error() const { return detail::error_of(handle_.get()); }

  // The exception given to the first cancel, deadline or timeout that ended it; a
  // `cancelled` with the code of error() if none was given. Null while it is not done.
  std::exception_ptr cause() const { return detail::cause_of(handle_.get()); }

  // The earliest deadline of the context and its ancestors; time_point::max() if there is
  // none. If their deadlines are on different clocks (each virtual runtime has its own),
  // the nearest context's counts.
  clock::time_point deadline() const {
    return clock::time_point(clock::duration(detail::deadline_of_context(handle_.get())));
  }

  // The value of the nearest enclosing with_value for this key; nullptr if there is none.
  // It lives as long as this handle. Costs one step for each context on the way.
  template <class T>
  const T* value(const context_key<T>& key) const {
    return static_cast<const T*>(detail::value_of(handle_.get(), &key));
  }

  // Whether both name the same context.
  friend bool operator==(const context& a, const context& b) noexcept {
    return a.handle_.get() == b.handle_.get();
  }

  explicit context(detail::context_core* owned) noexcept : handle_(owned) {}

  detail::context_core* core() const noexcept { return handle_.get(); }

 private:
  detail::context_handle handle_;
};

struct cancellable;

namespace detail {

cancellable cancellable_of(context_core* owned);

}  // namespace detail

// cancel_function: cancels the context that it was made with. Copies do the same. It does
// nothing if the context is done already, so the first cause stays. It never waits. It
// runs the callbacks of std::stop_token, and the destructors of objects that only this
// context kept alive. Throws nothing, except std::bad_alloc where it makes a cause.
// Thread safety: that of context. Lifetime: it counts as a handle; dropping it cancels
// nothing. Shutdown: it works as ever. Cost: a visit to each context below and each
// waiter. Go: CancelFunc, CancelCauseFunc.
class cancel_function {
 public:
  cancel_function() noexcept = default;  // does nothing

  void operator()() const noexcept { (*this)(std::exception_ptr()); }

  // With a cause; null means none.
  void operator()(const std::exception_ptr& cause) const noexcept {
    if (of_) detail::cancel(of_.core(), cause);
  }

  void operator()(const std::error_code& cause) const {
    (*this)(std::make_exception_ptr(std::system_error(cause)));
  }

  // With any exception object as the cause.
  template <class E>
    requires(std::is_class_v<E> && !std::is_same_v<E, std::exception_ptr> &&
             !std::is_same_v<E, std::error_code>)
  void operator()(E cause) const {
    (*this)(std::make_exception_ptr(std::move(cause)));
  }

 private:
  friend cancellable detail::cancellable_of(detail::context_core* owned);

  explicit cancel_function(context of) noexcept : of_(std::move(of)) {}

  context of_;
};

// cancellable: a new context and the function that cancels it: auto [ctx, cancel] = ...
// Throws nothing. Thread safety: that of context. Lifetime: both count as handles.
struct [[nodiscard]] cancellable {
  context ctx;
  cancel_function cancel;
};

namespace detail {

inline cancellable cancellable_of(context_core* owned) {
  context ctx(owned);
  return {ctx, cancel_function(ctx)};
}

}  // namespace detail

// The functions below throw std::invalid_argument for a nil parent, and std::bad_alloc. A
// context made from a parent that is done is done from the start.

// The root context. On a fiber it is its runtime's, which is done as soon as the shutdown
// begins, before options::grace passes: the cancelled waits throw a `cancelled` with
// is_by_shutdown(), which ends a fiber silently. On a plain thread it is never done.
// Throws std::bad_alloc. Thread safety: any fiber or thread. Lifetime: as long as a
// handle, even after the run. Shutdown: it is done first of all. Cost: made at the first
// call in a run. Go: context.Background, which is never done.
[[nodiscard]] inline context background() {
  return context(detail::background());
}

// Makes a context that is done when `cancel` is called, or when its parent is done.
// Throws std::invalid_argument for a nil parent, and std::bad_alloc. Thread safety: any
// fiber or thread. Lifetime: that of context; nothing leaks if `cancel` is never called.
// Shutdown: that of context. Cost: one allocation. Go: context.WithCancel,
// WithCancelCause.
inline cancellable with_cancel(const context& parent, const site& from = site::current()) {
  return detail::cancellable_of(detail::with_cancel(parent.core(), from));
}

// Makes a context that is also done at the deadline: error() is then timed_out, and
// cause() is the given cause, if any. If the deadline, or the parent's, has passed, it is
// done at once.
//
// The timer does not keep a program alive, and may fire late in a busy program, but never
// early. It ends with its run: in another run make a new context from this one, which
// gets a timer there. Throws wrong_place on a plain thread, unless no timer is needed:
// the deadline is time_point::max(), or the parent's is not later and has its timer in
// this run; and what with_cancel throws. Thread safety: that of with_cancel. Lifetime:
// that of context. Shutdown: that of context. Cost: two allocations at most, and a timer.
// Go: context.WithDeadline, WithDeadlineCause.
template <detail::time_point_like Time>
cancellable with_deadline(const context& parent,
                          const Time& t,
                          std::exception_ptr cause = nullptr,
                          const site& from = site::current()) {
  return detail::cancellable_of(
      detail::with_deadline(parent.core(), detail::to_deadline(t), std::move(cause), from));
}

// Makes a context as with_deadline does, with the deadline d from now; it is done at once
// if d is zero or negative. With a d beyond the range of the clock there is no deadline.
// Throws what with_deadline throws, and std::invalid_argument for NaN. Thread safety:
// that of with_cancel. Lifetime: that of context. Shutdown: that of context. Cost: that
// of with_deadline. Go: context.WithTimeout, WithTimeoutCause.
template <detail::duration_like D>
cancellable with_timeout(const context& parent,
                         const D& d,
                         std::exception_ptr cause = nullptr,
                         const site& from = site::current()) {
  const std::int64_t deadline = detail::saturating_add(detail::now(), detail::to_nanos(d));
  return detail::cancellable_of(
      detail::with_deadline(parent.core(), deadline, std::move(cause), from));
}

template <class write = detail::write_a_duration_such_as_5ms>
void with_timeout(const context& parent, ...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

// Makes a context like its parent, but with this value under this key. Throws what
// with_cancel throws, and what the move of the value throws. Thread safety: any fiber or
// thread; readers share the value, which is const. Lifetime: the value dies with the
// context. Shutdown: that of context. Cost: two allocations. Go: context.WithValue.
template <class T>
[[nodiscard]] context with_value(const context& parent,
                                 const context_key<T>& key,
                                 std::type_identity_t<T> value) {
  return context(
      detail::with_value(parent.core(), &key, new T(std::move(value)), [](void* old) noexcept {
        delete static_cast<T*>(old);
      }));
}

// Makes a context with the parent's values that is never done and has no deadline. Throws
// what with_cancel throws. Thread safety: any fiber or thread. Lifetime: it keeps its
// parent. Shutdown: does not reach it; waits under it end by `stopped`. Cost: one
// allocation. Go: context.WithoutCancel.
[[nodiscard]] inline context without_cancel(const context& parent) {
  return context(detail::without_cancel(parent.core()));
}

// done_callback: the handle that after_func(ctx, f) returns. Copies name the same
// registration. Throws wrong_place, `stopped` and `cancelled` from stop_and_wait() alone.
// Thread safety: that of context. Lifetime: dropping it changes nothing: f may still run.
// If f refers to variables of a scope, or to the object that keeps the handle, use
// scoped_done_callback. Shutdown: that of after_func. Cost: a shared handle. Go: the stop
// function of context.AfterFunc.
class done_callback {
 public:
  done_callback() noexcept = default;  // stop() is false

  explicit done_callback(detail::done_registration* owned) noexcept : handle_(owned) {}

  // Returns true exactly if it prevented f: the context was not done, and f had not been
  // stopped before. f is then destroyed. Does not wait for a running f.
  bool stop() const noexcept { return handle_.get() != nullptr && detail::stop(handle_.get()); }

  // The same, but also prevents an f that is due and has not begun, and waits for a
  // running one: when it returns, f is not running and will not run. (Its captures may be
  // destroyed a moment later.) Inside f it throws wrong_place. May be called on a fiber
  // or a plain thread.
  bool stop_and_wait() const { return stop_within(detail::no_limit); }

  // The same; throws `cancelled` when ctx is done. f may then still be running, but will
  // not begin.
  bool stop_and_wait(const context& ctx) const { return stop_within(detail::cancelled_by(ctx)); }

 private:
  template <class Handle>
  friend class detail::scoped_handle;

  const detail::timer_record* record() const noexcept {
    return handle_.get() != nullptr ? detail::record_of(handle_.get()) : nullptr;
  }

  bool stop_within(const detail::wait_limit& limit) const {
    return handle_.get() != nullptr && detail::stop_and_wait(handle_.get(), limit);
  }

  detail::handle<detail::done_registration> handle_;
};

// scoped_done_callback: a done_callback that at the end of the scope prevents f, or waits
// for a running f (unless the scope ends inside f), as scoped_timer does. Throws nothing
// from its destructor. Thread safety: one fiber or thread at a time. Lifetime: that of
// scoped_timer: as a member it comes last. Shutdown: that of scoped_timer. Cost: short
// locks at its end.
using scoped_done_callback = detail::scoped_handle<done_callback>;

// Runs f once on a fiber of the current runtime when ctx is done; at once if it is done
// already. The canceller does not wait for f. An exception that leaves f goes to
// options::on_unhandled. Throws std::invalid_argument for a nil context or an empty
// function, wrong_place on a thread without a runtime, and std::bad_alloc. Thread safety:
// any fiber; f runs on any worker. Lifetime: the pending call keeps the context alive
// until it is stopped or the context is done. Shutdown: f still starts during
// options::grace; if the runtime has gone by then, or its waits already throw `stopped`,
// f is destroyed without having run. Cost: one allocation, for captures of up to 40
// bytes. Behaviour: Go's context.AfterFunc.
template <class F>
  requires std::is_invocable_v<std::decay_t<F>&>
done_callback after_func(const context& ctx, F&& f, const site& from = site::current()) {
  return done_callback(detail::after_func(ctx.core(), detail::callback(std::forward<F>(f)), from));
}

template <class write = detail::f_is_called_without_arguments>
void after_func(const context& ctx, ...) VIGIL_REFUSED(VIGIL_WANTS_PLAIN_FUNCTION);

}  // namespace VIGIL_PUBLIC
