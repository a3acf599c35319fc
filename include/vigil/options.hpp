// options: the settings of a runtime.
#pragma once

#include <vigil/detail/config.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <initializer_list>
#include <optional>
#include <type_traits>

namespace boost::asio {

class io_context;

}  // namespace boost::asio

namespace vigil::inline VIGIL_ABI::detail {

class watch;

}  // namespace vigil::inline VIGIL_ABI::detail

namespace vigil::inline VIGIL_ABI {

namespace detail {
[[noreturn]] VIGIL_API void throw_too_many_signals();
}

// The action of run() on a deadlock: nothing in the program can ever happen again.
// Runtimes that run at the same time may wait for each other's fibers, timers and
// channels. While one of them goes on (it runs, has a timer, I/O or outside work, or
// waits for a signal), none is reported. When all are stuck, on themselves or on each
// other, all are reported, each as its own options say. A runtime that is not running
// does not count; announce a thread that will run it with make_work_guard().
//
// With options::stop_on a signal can end some waits, so nothing is reported while
// - a fiber waits for done() of background() or of a context made from it, or in a
//   wait that was given such a context;
// - such a context has an after_func, or a std::stop_token of it was given out;
// - the main fiber sleeps for ever or selects from nothing.
// Nor is anything reported while a receiver of notify_signals lives.
enum class on_deadlock {
  automatic,  // fatal if no outside work is announced and the process has no thread but the
              // runtimes' own, otherwise warn: a plain thread might still send something
  fatal,      // dump, unwind all fibers, run() throws `deadlock`; a wait for a lock that
              // nobody can release throws `deadlock` as well. A fiber that cannot
              // be unwound (under a shield, in a destructor) ends the program after
              // stop_limit
  warn,       // dump once to standard error, and wait on
};

// When run() returns.
enum class exit_when {
  main_returns,  // with the main fiber, as a Go program
  // ... and when nothing more is to be expected, as a Node program: no other
  // fiber is left, no referenced timer is pending (timer::ref), no posted
  // function waits and no outside work is announced (a function in blocking(), a
  // work_guard). Fibers that are parked for ever are a deadlock then. A stop, or
  // an exception of the main fiber, ends the run at once all the same. Plain
  // threads that still want to start something hold a work_guard. So does a handler
  // in an io_context of Asio's that is still to come (vigil-io): what is outstanding
  // there Asio tells nobody, so it holds nothing by itself, unless it is to run on
  // io::executor() or a fiber waits for it.
  all_done,
};

// Signals by their numbers. Not a standard container, since those of a program
// that is built with -D_GLIBCXX_DEBUG have another layout than the library's.
class signal_list {
 public:
  static constexpr std::size_t capacity = 64;

  constexpr signal_list() noexcept = default;

  signal_list(std::initializer_list<int> list) : signal_list(list.begin(), list.size()) {}

  // From an array, a vector, a span of int.
  template <class C>
    requires(!std::is_same_v<C, signal_list> &&
             requires(const C& list) {
               { list.data() } -> std::convertible_to<const int*>;
               { list.size() } -> std::convertible_to<std::size_t>;
             })
  signal_list(const C& list) : signal_list(list.data(), list.size()) {}

  // Throws std::invalid_argument when there are `capacity` already.
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

// Where idle workers wait: called once for each runtime, which owns the result.
struct watch_source {
  detail::watch* (*make)(boost::asio::io_context&) = nullptr;
  boost::asio::io_context* context = nullptr;
};

}  // namespace detail

// Settings of a runtime. Values out of range throw std::invalid_argument from
// the runtime's constructor, with the range in the text.
struct options {
  // Worker threads, the calling one included. 0: as many as the processors of
  // the affinity mask, at most the cgroup's quota. At most 1024.
  std::size_t workers = 0;

  // Usable bytes of a fiber's stack (fiber_options can say otherwise), and of
  // the main fiber's. 16 KiB to 1 GiB; 0 is an error. Only touched pages cost
  // memory.
  std::size_t stack_size = 128 * 1024;
  std::size_t main_stack_size = 1024 * 1024;

  // Limits of this runtime; 0: none. A call that would exceed them throws
  // limit_reached. max_fibers applies to the main fiber and those that go and spawn
  // start: it does not count the fiber of a callback that waits (after_func, every,
  // post). max_stack_bytes counts all stacks in their whole size, touched or not;
  // at this limit due callbacks wait for others to return.
  std::size_t max_fibers = 0;
  std::size_t max_stack_bytes = 0;

  exit_when exit = exit_when::main_returns;

  // The shutdown: after the root context is cancelled, fibers have `grace` to
  // end by themselves before their waits throw `stopped`; a fiber that has not
  // ended `stop_limit` after that ends the program, named. Negative: 0. While an
  // io::serve runs it is at least as long as that one's grace.
  std::chrono::nanoseconds grace{0};
  std::chrono::nanoseconds stop_limit{std::chrono::seconds{10}};

  // Threads at most of the runtime's side pool for blocking(), 1 to 1024. Not
  // given: VIGIL_BLOCKING_THREADS from the environment, or else 4.
  std::optional<std::size_t> blocking_threads = {};

  // Signals that shut the runtime down, SIGINT and SIGTERM for example. One that comes
  // 200 ms or more after the shutdown has begun, by a signal or otherwise, ends the
  // grace, so that all is stopped at once; earlier ones are taken for repetitions. Their
  // earlier handlers are put back when run() ends, unless the program has installed
  // others meanwhile. A wait for the shutdown, such as background().done().recv(), is not
  // reported as a deadlock (on_deadlock).
  signal_list stop_on = {};

  on_deadlock deadlock = on_deadlock::automatic;

  // Called on the fiber when an exception leaves a `go` fiber or a timer's
  // callback, as if under this_fiber::shield; an exception of its own ends the
  // program. nullptr: nothing catches the exception, so std::terminate is called
  // where it was thrown, and a core file or a debugger shows that stack; the fiber
  // and the exception are printed. Only for `cancelled` and `deadlock` is the stack
  // gone: they are caught, since they may end the fiber silently. The same holds
  // for an Asio handler that a worker runs (vigil-io), but without a fiber:
  // on_unhandled is called on the worker's own stack, where nothing may wait, and
  // the next handlers run.
  void (*on_unhandled)(std::exception_ptr error) = nullptr;

  // For debugging: a fiber that keeps its worker longer than this between two
  // switches (real time, also where time is virtual) is named once on standard
  // error, with its place of birth; a callback once for each place. Zero or
  // negative: off. On, each switch reads the clock, and a thread looks at those
  // that do not come back.
  std::chrono::nanoseconds slow_fiber{0};

  // If no worker has switched for so long while a timer is due or a fiber is
  // ready, that is said on standard error, once in a run, with the fibers that
  // run: each keeps its worker. Time in which the whole process stands still
  // (SIGSTOP, a debugger) does not count, nor does virtual time. Zero or
  // negative: never. A thread looks twice a second while workers are awake,
  // four times in a limit below 2 s; eight looks after all have gone to sleep (4 s,
  // or twice such a limit) it ends, but never while somebody waits.
  std::chrono::nanoseconds stuck_limit{std::chrono::seconds{10}};

  // SIGQUIT writes the dump to standard error, if SIGQUIT was at its default.
  bool dump_on_sigquit = true;

  // For io::attach, which fills it in.
  detail::watch_source watch = {};
};

}  // namespace vigil::inline VIGIL_ABI
