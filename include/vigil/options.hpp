// options: the settings of a runtime.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/shared_call.hpp>
#include <vigil/version.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <optional>
#include <type_traits>

namespace boost::asio {

class io_context;

}  // namespace boost::asio

namespace VIGIL_DETAIL {

class watch;

}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC {

namespace detail {
[[noreturn]] VIGIL_API void throw_too_many_signals();
}

// on_deadlock: the action of run() on a deadlock, when nothing in the program can ever
// happen again.
//
// Runtimes that run at the same time may wait for each other's fibers, timers and
// channels. No deadlock is reported while any of them is active: it runs a fiber, has a
// timer, I/O or outside work, or waits for a signal. When all are stuck, each is reported
// as its own options say. A runtime that is not running does not count; announce a thread
// that will run it by make_work_guard().
//
// With options::stop_on a signal can still end some waits. So nothing is reported while
// - a fiber waits for done() of background() or of a context made from it, or in a wait
//   that was given such a context;
// - such a context has an after_func, or a std::stop_token was made from it;
// - the main fiber sleeps for ever or selects from nothing.
// Without stop_on, nothing is reported while a fiber waits for done() of background() and
// the process has other threads, or the runtime waits in an io_context: a thread or a
// handler may call request_stop().
// Nor is a deadlock reported while a receiver of notify_signals lives, or during the run
// of a guest_runtime.
enum class on_deadlock {
  automatic,  // fatal if no outside work is announced and the process has no threads
              // except the runtimes' own; otherwise warn, because a plain thread might
              // still send something
  fatal,      // writes the dump, unwinds all fibers, and run() throws `deadlock`; so does
              // a wait for a lock that nobody can release. A fiber that cannot be unwound
              // (under a shield, in a destructor) ends the program after stop_limit
  warn,       // writes the dump once to standard error, and waits on
};

// exit_when: when run() returns.
enum class exit_when {
  main_returns,  // when the main fiber returns, like a Go program
  // When nothing more is expected, like a Node program: the main fiber has returned, no
  // other fiber is left, no referenced timer is pending (timer::ref), no posted function
  // waits, and no outside work is announced (a function in blocking(), a work_guard).
  // Fibers that are parked for ever are then a deadlock. A stop, or an exception of the
  // main fiber, still ends the run at once.
  //
  // A plain thread that still wants to start something must hold a work_guard. So must a
  // handler that is to come in an io_context (vigil-io), unless it is to run on
  // io::executor() or a fiber waits for it: Asio does not tell what is outstanding.
  all_done,
};

// timer_order: which of the timers with equal deadlines fires first.
enum class timer_order {
  any,  // not promised; on virtual time the seed draws it
  // The one that was armed first, as in Node and libuv. A reset is a new arming, even to
  // the same deadline, and so is each next run of every().
  //
  // If one arming returns before another begins, on whatever threads, and before the
  // deadline, it is the first; armings at the same time have either order. With
  // set_slack() the deadline plus the slack counts. A timer
  // that is due when it is armed has no place among those that were armed before; one on
  // wall or boot time has a new one after each step. Callbacks begin in this order, and
  // waiting fibers are made ready in it; with several workers a callback may begin before
  // the one ahead of it has ended. Cost: each arming adds one to a counter that all
  // workers share.
  as_armed,
};

// signal_list: a list of signal numbers. It is not a standard container, because those
// have another layout in programs built with -D_GLIBCXX_DEBUG than in the library. Throws
// std::invalid_argument for more than `capacity` signals. Thread safety: a plain value.
// Lifetime: it copies the numbers. Shutdown: it belongs to no run. Cost: room for
// `capacity` numbers, and no allocation.
class signal_list {
 public:
  static constexpr std::size_t capacity = 64;

  constexpr signal_list() noexcept = default;

  signal_list(std::initializer_list<int> list) : signal_list(list.begin(), list.size()) {}

  // From an array, a vector or a span of int.
  template <class C>
    requires(!std::is_same_v<C, signal_list> &&
             requires(const C& list) {
               { list.data() } -> std::convertible_to<const int*>;
               { list.size() } -> std::convertible_to<std::size_t>;
             })
  signal_list(const C& list) : signal_list(list.data(), list.size()) {}

  // Throws std::invalid_argument if the list has `capacity` signals already.
  void push_back(int signal) {
    if (size_ == capacity) detail::throw_too_many_signals();
    signals_[size_++] = signal;
  }

  const int* data() const noexcept { return signals_; }

  const int* begin() const noexcept { return signals_; }

  const int* end() const noexcept { return signals_ + size_; }

  std::size_t size() const noexcept { return size_; }

  bool empty() const noexcept { return size_ == 0; }

 private:
  signal_list(const int* first, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      push_back(first[i]);
  }

  int signals_[capacity] = {};
  std::size_t size_ = 0;
};

namespace detail {

// Where idle workers wait. Called once for each runtime, which owns the result.
struct watch_source {
  detail::watch* (*make)(boost::asio::io_context&) = nullptr;
  boost::asio::io_context* context = nullptr;
};

}  // namespace detail

// options: the settings of a runtime, whose members are set by name:
// options{.workers = 4}. Throws std::bad_alloc when a function is put in; the constructor
// of a runtime throws std::invalid_argument, with the range in the message, for a value
// out of range. Thread safety: a plain value. Lifetime: a runtime keeps a copy, and with
// it the captures of before_end and on_unhandled.
struct options {
  // Set by its constructor, and the first member in each version (version.hpp).
  detail::header_mark made_with = {};

  // The number of worker threads, including the calling one; at most 1024. 0 means the
  // number of processors in the affinity mask, limited by the cgroup's quota.
  std::size_t workers = 0;

  // The usable bytes of a fiber's stack (fiber_options may override it) and of the main
  // fiber's, 16 KiB to 1 GiB; 0 is an error. Only touched pages cost memory.
  std::size_t stack_size = 128 * 1024;
  std::size_t main_stack_size = 1024 * 1024;

  // Whether the main fiber stays on the thread that calls run, as if its function began
  // with a this_fiber::pin. Otherwise only its code up to the first wait is sure to run
  // there, and after a wait it may go on on any worker, as Go's main goroutine does. A
  // pinned main waits for its worker while that runs another fiber, however long.
  bool pin_main = false;

  // Limits of this runtime; 0 means none. A call that would exceed one throws
  // limit_reached. max_fibers applies to the main fiber and to go and spawn, but not to
  // the fiber of a waiting callback (after_func, every, post). max_stack_bytes counts all
  // stacks at their full size, touched or not; at this limit due callbacks wait until
  // others return or fibers end.
  std::size_t max_fibers = 0;
  std::size_t max_stack_bytes = 0;

  // The number of stacks of ended fibers that may stay warm: they keep the memory that
  // those fibers touched, so fibers that start soon pay no page faults. Any number is
  // allowed; fewer give memory back sooner after a peak, of which nothing is kept after
  // ten seconds or the end of the run. About a thousand idle stacks may be kept besides,
  // with 0 as well. Runtimes share their stacks and add up their numbers; one on virtual
  // time adds none.
  std::size_t warm_stacks = 128 * 1024;

  exit_when exit = exit_when::main_returns;

  // With exit_when::all_done: called on the main fiber when nothing more is expected. It
  // may start something and return true: the run goes on, and it is called again at the
  // next end. After false the run ends when all that it has left is done, and it is not
  // called again; so true each time means for ever. It may wait. Behaviour: Node's
  // beforeExit, except that the return value decides, since a fiber that it starts may
  // have ended when it returns.
  //
  // A lambda may have captures. They die with the last copy of the options, of which a
  // runtime keeps one.
  //
  // Not called if the main fiber's function ended by an exception, if a stop was asked
  // for, or with main_returns. An exception that leaves it ends the run and comes out of
  // run(), as one of the main fiber's function; a stop ends its waits.
  detail::shared_call<bool()> before_end = nullptr;

  timer_order equal_deadlines = timer_order::any;

  // The shutdown cancels the root context, gives fibers `grace` to end by themselves, and
  // then makes their waits throw `stopped`. A fiber that has not ended `stop_limit` after
  // that ends the program with a message that names it. Negative values mean 0. While an
  // io::serve runs, the grace is at least that of its serve_limits.
  //
  // If no grace is given, main's function has five seconds after a signal of stop_on.
  // They end when it has returned, with a second signal, and sooner if a running
  // io::serve names a shorter grace; after one of them a line on standard error names
  // main's wait. A shutdown without a signal then has no grace, nor has one that begins
  // after main's function has returned.
  std::optional<std::chrono::nanoseconds> grace = {};
  std::chrono::nanoseconds stop_limit{std::chrono::seconds{10}};

  // The largest number of threads of the runtime's side pool for blocking(), 1 to 1024.
  // If not given: VIGIL_BLOCKING_THREADS from the environment, otherwise 4.
  std::optional<std::size_t> blocking_threads = {};

  // Signals that shut the runtime down, for example SIGINT and SIGTERM. If that unwinds
  // main's function, run() returns 128 + the signal, as a shell does (runtime::run). A
  // signal that comes 200 ms or more after the shutdown has begun, for whatever reason,
  // ends the grace, so that everything is stopped at once; earlier ones count as
  // repetitions. The previous
  // handlers are restored when run() ends, unless the program has installed others
  // meanwhile. A wait for the shutdown, such as background().done().recv(), is not a
  // deadlock (on_deadlock).
  signal_list stop_on = {};

  on_deadlock deadlock = on_deadlock::automatic;

  // Called on the fiber when an exception leaves a `go` fiber or a timer's callback, as
  // if under this_fiber::shield. If it throws itself, the program ends. It may have
  // captures, as before_end; several workers may call it at a time. The exception of a
  // fiber whose handle is dropped after the end of the runtime is given to it as well, so
  // captures live until then.
  //
  // nullptr: the exception is not caught, so std::terminate is called where it was
  // thrown, and a core file or a debugger shows that stack; the fiber and the exception
  // are printed. Only `cancelled` and `deadlock` are caught, since they may end a fiber
  // silently; if one is reported, its stack is gone.
  //
  // The same holds for an Asio handler that a worker runs (vigil-io), except that
  // on_unhandled is called on the worker's own stack, where nothing may wait; the next
  // handlers still run.
  detail::shared_call<void(std::exception_ptr error)> on_unhandled = nullptr;

  // How many calls that might wait, but are served at once, a fiber or a task may make in
  // one turn; up to 1 000 000. The next one lets others go first, as this_fiber::yield()
  // does. 0 means any number: then a loop over a channel that is never empty keeps its
  // worker for ever. docs/guide/fibers.md tells which calls.
  std::uint32_t turn_budget = 256;

  // For debugging: names, on standard error, a fiber or a callback that keeps its worker
  // longer than this between two switches, while it still does: once for each place where
  // such a one was started, up to 256 places, and with its frames after
  // inspect::install(). One that keeps it half as long again, and for a millisecond more
  // at least, is named for certain if a processor is free to look. Measured in real time,
  // even on virtual time. Zero or negative means off. It costs a switch nothing.
  std::chrono::nanoseconds slow_fiber{0};

  // If no worker has switched for this long although a timer is due or a fiber is ready,
  // this is reported on standard error, once in a run, with the fibers that keep the
  // workers. Real time only; time in which the whole process stands still (SIGSTOP, a
  // debugger) does not count. Zero or negative means never. A thread of the run looks a
  // few times a second while workers are awake, and not in a program at rest.
  std::chrono::nanoseconds stuck_limit{std::chrono::seconds{10}};

  // The number of events that the flight recorder keeps for each worker, and for all
  // other threads together: the last ones, rounded up to a power of two; at most 2^26,
  // and 0 means that nothing is recorded. An event takes 16 bytes, once it has come.
  // vigil-inspect writes them out: inspect::write_trace. If not given:
  // VIGIL_RECORDER_EVENTS from the environment, otherwise 0. 16 384 are a good choice:
  // they stay in a cache.
  std::optional<std::size_t> recorder_events = {};

  // Whether SIGQUIT writes the dump to standard error, if SIGQUIT was at its default.
  bool dump_on_sigquit = true;

  // Filled in by io::attach.
  detail::watch_source watch = {};
};

}  // namespace VIGIL_PUBLIC
