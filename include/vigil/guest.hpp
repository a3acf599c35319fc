// guest_runtime: a runtime inside the loop of a host, such as libuv, GLib, Qt, or the
// frames of a game. It has one worker, the host's thread, which it uses only while the
// host calls it.
//
//   vigil::guest_runtime guest;
//   guest.start([] { … });                       // the main fiber
//   loop.when_readable(guest.descriptor(), [&] {  // there is something to do
//     if (!guest.poll()) loop.quit();
//   });
//
// Between two calls no fiber runs: timers that come due meanwhile fire at the next call.
// The descriptor is what tells the host when that should be.
//
// The host's own code does not run on a fiber. It may send to channels without waiting,
// and use runtime() as any thread may; a wait there would hold up the fibers that it
// waits for.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/options.hpp>
#include <vigil/runtime.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

namespace detail {
class guest_core;
}

// guest_runtime: a runtime that runs only while its host calls it. Throws wrong_place on
// a wrong thread and in a fiber, the main fiber's exception from poll(), and what is said
// at each call. Thread safety: all functions but descriptor() and runtime() belong to the
// thread that has called start(). Other threads reach the fibers through runtime() and
// channels. Lifetime: it is declared after what its fibers use. Shutdown: poll() goes on
// with it until it returns false; the destructor runs it to its end. Cost: no thread of
// its own, unless options::slow_fiber is set or fibers use vigil-io. Behaviour:
// uv_backend_fd and uv_run.
class VIGIL_API guest_runtime {
 public:
  // options::workers must be 0 or 1: for more work at once there are blocking() and
  // runtimes on other threads. main_stack_size is also that of the worker's own stack.
  // stuck_limit has no effect, since the runtime stands still whenever the host does; the
  // times of grace and stop_limit pass meanwhile. While a run lasts no deadlock is
  // reported, of other runtimes neither: the host may always do something.
  //
  // Throws std::invalid_argument, and std::system_error if there are no descriptors or no
  // memory.
  explicit guest_runtime(const options& settings = {});
  // Asks the fibers to stop, and runs them until they have ended, as the destructor of a
  // fiber does; so it is declared after what they use. A main fiber that has not begun
  // never does. An exception of the main fiber goes to options::on_unhandled, or ends the
  // program. So does a destructor on another thread, or in a fiber, before the end.
  //
  // In a forked child, and for a guest with static storage after main or std::exit, it
  // does nothing: the objects that the fibers use may be gone. End the run before that:
  // runtime().request_stop(), then poll() until it is false.
  ~guest_runtime();
  guest_runtime(const guest_runtime&) = delete;
  guest_runtime& operator=(const guest_runtime&) = delete;

  // Makes f the main fiber, which begins with the next call of poll(), run_one() or
  // run_for(); what f returns is dropped. During the run the thread's timer slack is 1
  // ns. May be called again after the end, on any thread. Throws wrong_place in a fiber,
  // if an earlier main fiber has not ended, or while runtime().run() runs on another
  // thread, and std::system_error if vigil-io finds no thread.
  template <class F>
  void start(F&& f) {
    detail::refuse_empty("vigil::guest_runtime::start", f);
    begin(detail::callback(std::forward<F>(f)));
  }

  // Runs what is ready, without waiting, until there is nothing more or until about a
  // millisecond has passed; the stretch of a fiber between two waits is never cut. If
  // there is more to do then, the descriptor is readable.
  //
  // Returns true until the run has ended: the main fiber has returned, or a stop was
  // asked for, and all fibers have ended (options::exit). Then it returns false, at once,
  // on any thread. Throws the exception of the main fiber, once the run has ended;
  // wrong_place on a thread other than that of start(), and in a fiber.
  bool poll();

  // The same, but waits until a fiber has run, so each call makes progress, as
  // uv_run(UV_RUN_ONCE) does. It waits for ever if only the host itself could give the
  // fibers something to do.
  // Waits on a thread: throws wrong_place, what f throws.
  bool run_one();

  // Runs what is ready, and waits for more, until the time has passed or the run has
  // ended. Zero and negative times mean poll().
  // Waits on a thread: throws wrong_place, what f throws.
  template <detail::duration_argument D>
  bool run_for(const D& d) {
    return run_for_nanos(detail::to_nanos(d));
  }

  // When the runtime wants to run again, as things stand: a time that has passed, however
  // long ago, if there is something to do, and clock::time_point::max() if only an event
  // can change that, or if nothing runs. It may name a time a few milliseconds ahead at
  // which no timer is due, to tidy up. For hosts that have no use for the descriptor.
  // Other threads and I/O may bring the time forward, so such a host polls now and then.
  clock::time_point next_deadline() const noexcept;

  // A descriptor that is readable whenever there is something to do, by a timer, another
  // thread, a signal or I/O. For each call of poll() it may be readable once in vain. It
  // is level-triggered (no EPOLLET), and only to be waited for: poll() makes it
  // unreadable. It stays the same until the destructor, which closes it. Any thread.
  int descriptor() const noexcept;

  // For go, post, after_func, request_stop, make_work_guard and stats. Its run() works
  // before start() and after the end.
  vigil::runtime& runtime() noexcept;

 private:
  void begin(detail::callback main);
  bool run_for_nanos(std::int64_t length);

  detail::guest_core* core_;
};

}  // namespace VIGIL_PUBLIC
