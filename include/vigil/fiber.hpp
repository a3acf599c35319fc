// Fibers: go, spawn, fiber<R>, this_fiber.
//
// A fiber is a function with a stack of its own that runs on the workers of a
// runtime, many fibers on few threads. It gives its worker away only where it
// waits (sleep, join, yield, …), and may go on afterwards on another thread.
// So across a wait a fiber must not hold a std::mutex, the address of a
// thread_local, or errno; `this_fiber::no_park` checks that, and
// `this_fiber::pin` avoids the question.
//
// Cost: no thread, one touched page of stack while parked (128 KiB reserved),
// a few tens of nanoseconds to start and to switch.
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

namespace vigil::inline VIGIL_ABI {

// How a fiber is started.
struct fiber_options {
  // Usable bytes, 16 KiB to 1 GiB, rounded up to a size class; 0: the
  // runtime's options::stack_size.
  std::size_t stack_size = 0;
  // Shown by the dump and in messages; the first 31 bytes are kept. Control characters
  // are shown escaped, as \n or \x1b.
  std::string_view name = {};
};

// A fiber that was spawned: the right to its result. Movable. The destructor
// of a handle that was neither joined nor detached asks the fiber to stop and
// then waits for it, so a fiber never outlives the scope that started it. In a forked
// child, which has none of its parent's fibers, it does nothing.
//
// Thread safety: one handle, one user at a time; different handles are
// independent. A handle may outlive its runtime (its fiber has ended by then).
template <class R = void>
class [[nodiscard]] fiber {
 public:
  // An empty handle: joinable() is false.
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

  // Waits until the fiber has ended and returns its result, or throws what it
  // threw. Throws `cancelled` if it ended by `stopped`, `wrong_place` if this
  // handle is empty, is the calling fiber's own, or is being joined by somebody
  // else, and `stopped` if the caller is asked to stop while it waits (the handle
  // then stays joinable). From a fiber or a plain thread.
  R join() { return join_within(detail::no_limit); }

  // The same, at most until ctx is done: then throws `cancelled`, and the handle
  // stays joinable. (One thrown because the fiber itself was stopped does not:
  // joinable() tells them apart.)
  R join(const context& ctx) { return join_within(detail::cancelled_by(ctx)); }

  // The same with a timeout, or a deadline of any clock: true if the fiber has ended,
  // and join() will not wait. A zero or negative timeout, and a deadline that has
  // passed, only look.
  template <detail::duration_like D>
  [[nodiscard]] bool join_for(const D& timeout) {
    return detail::wait_for_end(core_, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool join_until(const Time& t) {
    return detail::wait_for_end(core_, detail::until(t));
  }

  // Lets the fiber go its own way. An exception that leaves it from now on
  // goes to options::on_unhandled.
  void detach() { detail::detach(std::exchange(core_, nullptr)); }

  // Asks the fiber to stop: its present wait and each later one throws
  // `stopped`. Returns at once. No effect on a fiber that has ended.
  void request_stop() noexcept {
    if (core_ != nullptr) detail::request_stop(core_);
  }

  // The fiber's number, as in the dump; 0 for an empty handle.
  std::uint64_t id() const noexcept { return core_ == nullptr ? 0 : detail::id_of(core_); }

 private:
  R join_within(const detail::wait_limit& limit) {
    detail::join(core_, limit);
    const detail::ended_fiber ended(std::exchange(core_, nullptr));
    if constexpr (!std::is_void_v<R>) return R(std::move(*static_cast<R*>(ended.result())));
  }

  detail::fiber_core* core_ = nullptr;
};

// Starts f(args...) on a fiber of the current runtime and lets it go, as Go's
// `go` statement. The arguments are copied or moved into the fiber. An
// exception that leaves it goes to options::on_unhandled, by default: print
// and terminate. Throws wrong_place on a thread without a runtime (use
// runtime::go there), limit_reached or std::bad_alloc if no stack can be had,
// and std::invalid_argument for an empty function or a bad stack size.
//
//   void go(f, args...);
//
// The dump shows the caller's line as the fiber's place of birth, with up to
// eight arguments. (With more it shows a line of a header of vigil.)
template <class F>
void go(F&& f, const site& from = site::current()) {
  detail::start({}, true, from, std::forward<F>(f));
}

// Starts f(args...) on a fiber and returns the handle that joins it. Errors and
// place as for go().
//
//   fiber<R> spawn(f, args...);
//   fiber<R> spawn(fiber_options, f, args...);
template <class F>
  requires detail::startable<F>
auto spawn(F&& f, const site& from = site::current()) {
  return fiber<detail::fiber_result<F>>(detail::start({}, false, from, std::forward<F>(f)));
}

template <class F>
  requires detail::startable<F>
auto spawn(const fiber_options& how, F&& f, const site& from = site::current()) {
  return fiber<detail::fiber_result<F>>(detail::start(how, false, from, std::forward<F>(f)));
}

// The fiber that is running. Unless it says otherwise, a call outside a fiber
// throws wrong_place.
namespace this_fiber {

// Lets the other runnable fibers and due timers go first. Returns without a
// switch if there are none. Throws `stopped` if the fiber is asked to stop.
VIGIL_API void yield();

// The fiber's number, unique in its runtime, as in the dump; 0 outside one.
VIGIL_API std::uint64_t id() noexcept;

// The name the dump shows; empty outside a fiber. Valid until set_name().
VIGIL_API std::string_view name() noexcept;

// Gives the fiber a name; the first 31 bytes are kept.
VIGIL_API void set_name(std::string_view name);

// True once the fiber has been asked to stop; false outside a fiber.
VIGIL_API bool stop_requested() noexcept;

// Each of the three guards below must end on the fiber that made it: one that ends
// on another fiber or thread, in a later callback or in a forked child ends the
// program with a message. A guard that a callback leaves behind has no effect
// afterwards.

// While it lives, the fiber stays on the worker thread it is on. A pinned fiber
// that is ready waits for that worker even while others are idle.
class [[nodiscard]] VIGIL_API pin {
 public:
  [[nodiscard]] pin();
  ~pin();
  pin(const pin&) = delete;
  pin& operator=(const pin&) = delete;

 private:
  detail::guard_owner owner_;
};

// While it lives, waits of this fiber do not throw `stopped`: for clean-up
// that must wait, above all in destructors and other noexcept functions. The
// shutdown waits for it, at most options::stop_limit.
class [[nodiscard]] VIGIL_API shield {
 public:
  [[nodiscard]] shield();
  ~shield();
  shield(const shield&) = delete;
  shield& operator=(const shield&) = delete;

 private:
  detail::guard_owner owner_;
};

// While it lives, a call that would give the worker away ends the program
// with a message: a guard around code that holds a std::mutex, the address of
// a thread_local, or errno.
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

// A variable of which each fiber has its own: made by T's default constructor,
// or as a copy of the given value, at the fiber's first use; destroyed when the
// fiber ends, in the reverse order of first use. Declare it with static storage.
// A destructor may use other variables, which makes values that were destroyed
// anew. That ends after four rounds, as with thread-specific data of pthreads:
// what is left then is not destroyed.
template <class T>
class fiber_local {
 public:
  constexpr fiber_local() noexcept : make_([](const fiber_local&) { return new T(); }) {}

  explicit constexpr fiber_local(T initial)
      : initial_(std::move(initial)),
        make_([](const fiber_local& self) { return new T(*self.initial_); }) {}

  fiber_local(const fiber_local&) = delete;
  fiber_local& operator=(const fiber_local&) = delete;

  // The calling fiber's own; throws wrong_place outside a fiber.
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

}  // namespace vigil::inline VIGIL_ABI

#include <vigil/detail/start_with_arguments.hpp>
