// Fibers: go, spawn, fiber<R>, this_fiber.
//
// A fiber is a function with a stack of its own. Many fibers run on the few worker
// threads of a runtime. A fiber gives up its worker only where it waits (sleep, join,
// yield, …), and may continue on another thread. So it must not hold a std::mutex, the
// address of a thread_local, or errno across a wait. `this_fiber::no_park` checks that;
// `this_fiber::pin` keeps the fiber on its thread.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/fiber_body.hpp>
#include <vigil/detail/fiber_core.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

// fiber_options: how a fiber is started. Throws nothing; go() and spawn() refuse a bad
// size. Thread safety: a plain value. Lifetime: the name is copied as the fiber starts.
struct fiber_options {
  // The usable bytes of its stack, 16 KiB to 1 GiB, rounded up to a size class; 0 means
  // the runtime's options::stack_size.
  std::size_t stack_size = 0;
  // The name shown by the dump and in messages. The first 31 bytes are kept; control
  // characters are shown escaped, as \n or \x1b.
  std::string_view name = {};
};

// fiber<R>: the handle of a spawned fiber, and the right to its result. Can be moved. If
// it was neither joined nor detached, the destructor asks the fiber to stop and waits for
// it, so the fiber never outlives the scope that started it; an error of the fiber then
// goes to options::on_unhandled. Throws what the fiber threw, from join(), and what is
// said there.
//
// Thread safety: a handle may be used by one fiber or thread at a time; different handles
// are independent. The fiber's writes are visible after join(). Lifetime: a fiber whose
// handle is a local never outlives that scope, unless it is detached, so it may refer to
// what was declared before the handle. A handle may outlive its runtime, whose fibers
// have all ended. Shutdown: the fiber's waits throw `stopped`, and join() of one that
// ended so throws `cancelled`. Cost: no thread; one touched page of stack while parked
// (128 KiB reserved), a few tens of nanoseconds to switch. Go: the go statement, with a
// result.
template <class R = void>
class [[nodiscard]] fiber {
 public:
  // Makes an empty handle: joinable() is false.
  fiber() noexcept = default;

  explicit fiber(detail::fiber_core* core) noexcept : core_(core) {}

  fiber(fiber&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}

  fiber& operator=(fiber&& other) noexcept {
    if (this != &other) {
      if (core_ != nullptr) detail::stop_and_join(core_);
      core_ = std::exchange(other.core_, nullptr);
    }
    return *this;
  }

  ~fiber() {
    if (core_ != nullptr) detail::stop_and_join(core_);
  }

  // True until join() or detach().
  bool joinable() const noexcept { return core_ != nullptr; }

  // Waits until the fiber has ended, and returns its result or throws its exception. May
  // be called on a fiber or a plain thread.
  //
  // Throws `cancelled` if the fiber ended by `stopped`; wrong_place if the handle is
  // empty, is the calling fiber's own, or is being joined already; and `stopped` if the
  // caller is asked to stop while it waits (the handle then stays joinable).
  R join() { return join_within(detail::no_limit); }

  // The same; throws `cancelled` when ctx is done, and the handle stays joinable. (After
  // a `cancelled` because the fiber itself was stopped, joinable() is false.)
  R join(const context& ctx) { return join_within(detail::cancelled_by(ctx)); }

  // The same with a timeout, or a deadline of any clock: true if the fiber has ended, so
  // that join() will not wait. A zero or negative timeout, and a deadline that has
  // passed, only look.
  template <detail::duration_argument D>
  [[nodiscard]] bool join_for(const D& timeout) {
    return detail::wait_for_end(core_, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool join_until(const Time& t) {
    return detail::wait_for_end(core_, detail::until(t));
  }

  // Gives up the handle; the fiber continues. An exception that leaves it from now on
  // goes to options::on_unhandled.
  void detach() { detail::detach(std::exchange(core_, nullptr)); }

  // Asks the fiber to stop: its current wait and each later one throws `stopped`. Returns
  // at once. Has no effect on a fiber that has ended.
  void request_stop() noexcept {
    if (core_ != nullptr) detail::request_stop(core_);
  }

  // The fiber's number, as in the dump; 0 for an empty handle.
  std::uint64_t id() const noexcept { return core_ == nullptr ? 0 : detail::id_of(core_); }

 private:
  friend struct detail::core_access;

  R join_within(const detail::wait_limit& limit) {
    detail::join(core_, limit);
    return take_result();
  }

  // Caller: the fiber has ended.
  R take_result() {
    const detail::ended_fiber ended(std::exchange(core_, nullptr));
    if constexpr (!std::is_void_v<R>) return R(std::move(*static_cast<R*>(ended.result())));
  }

  detail::fiber_core* core_ = nullptr;
};

// Starts f(args...) on a detached fiber of the current runtime, like Go's `go` statement.
// The arguments are copied or moved into the fiber. An exception that leaves it goes to
// options::on_unhandled; by default the program prints it and terminates. Lifetime: the
// fiber may outlive the caller's scope, so it must own what it uses, or refer to what
// outlives the run. Shutdown: its waits throw `stopped`. Cost: no allocation, if a pooled
// stack is there.
//
// Throws wrong_place on a thread without a runtime (use runtime::go there), limit_reached
// or std::bad_alloc if there is no stack, and std::invalid_argument for an empty function
// or a bad stack size. Thread safety: any fiber.
//
//   void go(f, args...);
//   void go(fiber_options, f, args...);
//
// The dump shows the caller's line as the place where the fiber was started, if there are
// at most eight arguments; with more it shows a line in vigil's headers.
template <class F>
void go(F&& f, const site& from = site::current()) {
  detail::start({}, true, from, std::forward<F>(f));
}

template <class F>
void go(const fiber_options& options, F&& f, const site& from = site::current()) {
  detail::start(options, true, from, std::forward<F>(f));
}

// Starts f(args...) on a fiber and returns the handle that joins it. The place in the
// dump is as for go(). Throws what go() throws. Thread safety: any fiber. Lifetime: that
// of the handle. Shutdown: that of fiber. Cost: that of go(); with join() about 250 ns.
// Go: a goroutine with a channel for its result.
//
//   fiber<R> spawn(f, args...);
//   fiber<R> spawn(fiber_options, f, args...);
template <class F>
auto spawn(F&& f, const site& from = site::current()) {
  static_assert(detail::checked_call<F>::is_done);
  return fiber<detail::fiber_result<F>>(detail::start({}, false, from, std::forward<F>(f)));
}

template <class F>
auto spawn(const fiber_options& options, F&& f, const site& from = site::current()) {
  static_assert(detail::checked_call<F>::is_done);
  return fiber<detail::fiber_result<F>>(detail::start(options, false, from, std::forward<F>(f)));
}

// The running fiber. Unless stated otherwise, a call outside a fiber throws wrong_place.
namespace this_fiber {

// Lets the other runnable fibers and due timers go first. Returns without a switch if
// there are none. Throws `stopped` if the fiber is asked to stop, and wrong_place. Thread
// safety: any fiber. Shutdown: throws `stopped` once waits do. Cost: one switch, about 20
// ns. Go: runtime.Gosched.
VIGIL_API void yield();

// The fiber's number, unique in its runtime, as in the dump; 0 outside a fiber. Throws
// nothing. Thread safety: any thread. Cost: a few loads.
VIGIL_API std::uint64_t id() noexcept;

// The name that the dump shows; empty outside a fiber. Throws nothing. Thread safety: any
// thread. Lifetime: valid until set_name(), and as long as the fiber. Cost: a few loads.
VIGIL_API std::string_view name() noexcept;

// Gives the fiber a name; the first 31 bytes are kept. Throws wrong_place outside a
// fiber. Thread safety: any fiber. Lifetime: the name is copied. Shutdown: works during
// it. Cost: a copy of at most 31 bytes.
VIGIL_API void set_name(std::string_view name);

// True once the fiber has been asked to stop; false outside a fiber. Throws nothing.
// Thread safety: any thread. Shutdown: true once waits throw `stopped`. Cost: a few
// loads.
VIGIL_API bool stop_requested() noexcept;

// Each of the three guards below must end on the fiber that made it. If one ends on
// another fiber or thread, in a later callback or in a forked child, the program ends
// with a message. A guard that a callback leaves behind has no effect afterwards.

// pin: while it lives, the fiber stays on its worker thread, which prefers it and runs
// others too. A pinned fiber that is ready may wait there for one turn of another fiber,
// however long it is, even while other workers are idle: beside an endless one it never
// runs again, and no stop reaches it. Throws wrong_place outside a fiber. Thread safety:
// it belongs to the fiber that made it. Lifetime: it ends on that fiber. Shutdown: it is
// stopped like others, on its worker. Cost: a counter, and the waits above. Go:
// runtime.LockOSThread, but the thread runs other fibers as well.
class [[nodiscard]] VIGIL_API pin {
 public:
  [[nodiscard]] pin();
  ~pin();
  pin(const pin&) = delete;
  pin& operator=(const pin&) = delete;

 private:
  detail::guard_owner owner_;
};

// shield: while it lives, waits of this fiber do not throw `stopped`. For clean-up that
// must wait, above all in destructors and other noexcept functions. Throws wrong_place
// outside a fiber. Thread safety: it belongs to the fiber that made it. Lifetime: it ends
// on that fiber. Shutdown: waits for it, at most options::stop_limit. Cost: a counter.
class [[nodiscard]] VIGIL_API shield {
 public:
  [[nodiscard]] shield();
  ~shield();
  shield(const shield&) = delete;
  shield& operator=(const shield&) = delete;

 private:
  detail::guard_owner owner_;
};

// no_park: while it lives, a call that would give up the worker ends the program with a
// message. Guards code that holds a std::mutex, the address of a thread_local, or errno.
// Throws wrong_place outside a fiber. Thread safety: it belongs to the fiber that made
// it. Lifetime: it ends on that fiber. Cost: a counter, and a look at it in calls that
// wait.
class [[nodiscard]] VIGIL_API no_park {
 public:
  [[nodiscard]] no_park();
  ~no_park();
  no_park(const no_park&) = delete;
  no_park& operator=(const no_park&) = delete;

 private:
  detail::guard_owner owner_;
};

}  // namespace this_fiber

// fiber_local<T>: a variable of which each fiber has its own value. Throws wrong_place
// outside a fiber, std::bad_alloc, and what the constructor of T throws. Thread safety:
// each fiber has its own value. Lifetime: declare it with static storage. The value is
// made at the fiber's first use, by T's default constructor or as a copy of the given
// value, and destroyed when the fiber ends, in the reverse order of first use.
//
// A destructor may use other fiber_locals, which makes destroyed values anew. This ends
// after four rounds, as for the thread-specific data of pthreads; values that are left
// then are not destroyed. Shutdown: destructors run as each fiber unwinds. Cost: a value
// is allocated at first use; a look walks over the values that the fiber has.
template <class T>
class fiber_local {
 public:
  constexpr fiber_local() noexcept : make_([](const fiber_local&) { return new T(); }) {}

  explicit constexpr fiber_local(T initial)
      : initial_(std::move(initial)),
        make_([](const fiber_local& self) { return new T(*self.initial_); }) {}

  fiber_local(const fiber_local&) = delete;
  fiber_local& operator=(const fiber_local&) = delete;

  // The calling fiber's value. Throws wrong_place outside a fiber.
  T& operator*() const {
    void* found = detail::find_local(this);
    if (found == nullptr) {
      T* made = make_(*this);
      try {
        detail::add_local(this, made, [](void* old) noexcept { delete static_cast<T*>(old); });
      } catch (...) {
        delete made;
        throw;
      }
      found = made;
    }
    return *static_cast<T*>(found);
  }

  T* operator->() const { return &**this; }

 private:
  std::optional<T> initial_;
  T* (*make_)(const fiber_local& self);
};

}  // namespace VIGIL_PUBLIC

#include <vigil/detail/start_with_arguments.hpp>
