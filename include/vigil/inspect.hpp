// Looking inside: the frames of every fiber, and what each waits for. This is the library
// vigil-inspect.
//
//   int main() {
//     vigil::inspect::install();
//     vigil::run(...);
//   }
//
// docs/guide/reports.md shows what the dumps then say.
#pragma once

#include <vigil/detail/config.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace VIGIL_PUBLIC::inspect {

// install_options: the settings of install(). Throws nothing; install() refuses a signal
// that cannot serve. Thread safety: a plain value.
struct install_options {
  // The signal by which the thread of a running fiber is asked where it is; 0: such
  // threads are not asked. It is sent during a dump, on x86-64 not to those that /proc
  // shows in a system call; and to all threads while fibers that can never go on are
  // looked for (vigil/leaks.hpp). Its handler runs on the alternate stack with
  // SA_RESTART, so most interrupted calls go on; those that the system never restarts
  // (nanosleep, poll, epoll_wait) return EINTR. A thread that blocks the signal is
  // waited for no longer than a tenth of a second, in such a search a fifth; a thread
  // that waits for the signal by sigwait() or a signalfd gets it there, as one more. A
  // handler that the program has for the signal is called for all that did not come from
  // here, with its mask, but never interrupts a call that SA_RESTART restarts. So choose
  // a signal that the program does not use: the system merges two that are pending. It
  // also drops what says whose a signal is while the user has as many pending as
  // RLIMIT_SIGPENDING allows: one of ours that comes late reaches the program's handler
  // then, and the default action is not done. SIGURG, SIGWINCH, SIGUSR1, SIGUSR2 or a
  // real-time signal; threads of the library that are there already hear only SIGURG. If
  // the program puts another handler in its place, running fibers are not asked until
  // the next install().
  int running_signal = SIGURG;
  // Whether dumps tell the addresses of the channels and locks that are waited for. They
  // are of use in a debugger, and to an attacker.
  bool addresses = false;
  // Whether the stacks of a few fibers are measured: stack_use_by_place().
  bool stack_use = true;
  // The signal on which dump_stuck_fibers() (vigil/leaks.hpp) writes to standard error,
  // on a thread that waits for it; 0: none. The program must not handle it, as a run does
  // with those of options::stop_on, must not ignore it, and must not name it as
  // running_signal. A child of fork() calls install() itself.
  int stuck_signal = 0;
};

// From now on each dump has the frames of every fiber, equal ones together, and names the
// object of each wait: the channel, the context, the lock and its holder (but not of a
// lock taken before). This holds for debug::dump, for the report of a deadlock or of
// stuck workers, for SIGQUIT and for an exception that nobody catches, which then shows
// where it was thrown. The report of options::slow_fiber has the fiber's frames.
//
// SIGQUIT and an abort write what a signal handler may: addresses instead of the names of
// functions, which `vigil-symbols` puts in afterwards, and nothing of running fibers.
//
// Throws std::invalid_argument for a signal that cannot serve, and std::system_error if
// no thread can be had. Thread safety: any thread, at any time; a later call changes the
// options. Lifetime: for the rest of the program. Shutdown: the end of a run does not end
// it. Cost: a lock of vigil::mutex notes its holder, a fiber that is measured costs some
// microseconds more, and one thread more sleeps until a dump is asked for.
VIGIL_API void install(const install_options& options = {});

// dump_options: the settings of dump() and dump_json(). Throws nothing. Thread safety: a
// plain value.
struct dump_options {
  bool frames = true;
  bool addresses = false;  // as in install_options
};

// Writes every fiber of the process, and then each runtime, as debug::dump does.
// install() need not have been called, but without it running fibers are not asked.
//
// Cost: no fiber is stopped or delayed: the stack of a parked one is copied, and given up
// ("has moved on") if the fiber has run meanwhile, so that no line mixes two moments. A
// running one is interrupted for some microseconds, and shown as it was then. The
// innermost 128 frames of a stack are shown, and the 20 fibers that have waited for
// longest with the same frames have a line each. At most 10 000 fibers are looked at; all
// are counted.
//
// The work is done on a thread of its own, for which the caller waits. If there is no
// memory for it, or it takes longer than 20 s (a stuck fiber may hold a lock of malloc or
// the dynamic loader), the fibers are listed as SIGQUIT lists them; after 3 s if malloc
// does not even let it begin. The caller itself allocates nothing after install(); an
// `out` that has no buffer yet remains without one then. Throws nothing; an error of
// writing stays in `out`: ferror(). Thread safety: any thread, or a fiber, whose worker
// is then kept for that time; not a signal handler. Lifetime: `out` is used during the
// call. Shutdown: works during it.
VIGIL_API void dump(std::FILE* out, const dump_options& options = {});

// Writes what dump() does as one JSON object: "fiber_count", "groups" (the table),
// "fibers", "stacks", "task_count", "tasks" and "runtimes"; a fiber's "stack" is an index
// in "stacks", and "may_have_ended_calls" tells whether a signal may have ended calls
// such as poll(). Durations are in nanoseconds. Names are UTF-8, with U+FFFD in place of
// other bytes. Throws std::bad_alloc, and std::system_error if no thread can be had, or
// if it takes longer than 20 s. If malloc does not even let it begin, which an exception
// would need as well, the object has one member, "error". Thread safety: that of dump.
// Lifetime: that of dump. Shutdown: works during it. Cost: that of dump.
VIGIL_API void dump_json(std::FILE* out, const dump_options& options = {});

// stack_use: how much of their stacks the fibers that were started in one place have
// used, in bytes: whole pages from the top of the stack down to the deepest that was
// touched, with up to 1.5 KiB in which vigil keeps the fiber itself. Throws
// std::bad_alloc when it is copied. Thread safety: a plain value. Cost: a string and 16
// numbers.
struct stack_use {
  static constexpr std::size_t buckets = 13;
  static constexpr std::size_t first_bound = 4096;

  std::string place;  // as in dumps: "server.cpp:41"
  // Measured fibers that have ended. Bucket i counts those that used at most
  // first_bound << i and are in no earlier bucket.
  std::array<std::uint64_t, buckets> count{};
  std::uint64_t sum_bytes = 0;
  // The most that one has used; those that are alive count as well.
  std::size_t most_bytes = 0;
  std::size_t least_stack = 0;  // the size of the smallest stack that one had

  VIGIL_API std::uint64_t total() const noexcept;
};

// Returns the uses measured since install(), of all runtimes, the largest first. One in
// 64 of the fibers that are started is drawn. The first 64 of those are measured in each
// place, and later ones ten times a second, on the runtime's clock.
//
// Fibers with a stack of more than 16 MiB are left out, and so are all where the kernel
// does not tell which pages have memory (locked memory, some sandboxes). Memory that is
// swapped out is not seen. At most 256 places have an entry; later ones count together,
// as "others".
//
// Throws std::bad_alloc. Thread safety: any thread. Shutdown: what was measured in a run
// stays after its end. Cost: a walk over the control blocks of all fibers, as in
// openmetrics().
VIGIL_API std::vector<stack_use> stack_use_by_place();

// The counters of each runtime that runs (vigil/stats.hpp), its fibers by state and by
// reason of their wait, and the use of stacks, in OpenMetrics' text format, which
// Prometheus reads. The names follow OpenTelemetry's conventions: the thing counted in
// the singular, base units, states as attributes. Each runtime is one value of the
// attribute "runtime". The type for HTTP is openmetrics_type.
//
// Throws std::bad_alloc. Thread safety: any thread. Shutdown: a run that has ended is
// left out. Cost: a walk over the control blocks of all fibers, a tenth of a microsecond
// each; nothing is stopped.
VIGIL_API std::string openmetrics();

// openmetrics_type: the type of openmetrics() for HTTP. Thread safety: a constant.
inline constexpr const char* openmetrics_type =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

// --- the flight recorder (options::recorder_events)

// Writes what each runtime that runs and records has recorded, and no more of it than the
// last `last` (zero or negative: only names), in the format of Perfetto: open the file at
// ui.perfetto.dev, or with its trace_processor. docs/guide/recorder.md says what it
// shows, and how many seconds that is. Times are those of the runtime's clock.
//
// Cost: nothing is stopped. It takes about a microsecond for each event, and up to 3 s
// for the names of functions if a limit of the time for which a fiber may run has passed;
// a fiber's worker is kept for that time, so call it in vigil::blocking. Throws
// std::bad_alloc, and std::system_error if `out` cannot be written. Thread safety: any
// thread; not a signal handler. Lifetime: `out` is used during the call. Shutdown: a run
// that has ended is left out.
VIGIL_API void write_trace(std::FILE* out,
                           std::chrono::nanoseconds last = std::chrono::nanoseconds::max());

// record_options: when a trace is to be written by itself; zero, or negative, stands for
// never. An event is looked at where it is recorded: with options::recorder_events = 0
// there is none. Throws std::bad_alloc when the path is copied. Thread safety: a plain
// value.
struct record_options {
  // A timer fires later than this after its deadline; its slack counts as late. A fiber
  // that keeps its worker meanwhile is reported as the limit passes, as
  // options::slow_fiber reports one: with its frames, and once for each place.
  std::chrono::nanoseconds timer_late{0};
  // A fiber, or a callback, has run for longer than this between two switches: the trace
  // is written when it leaves. It is reported as the limit passes, in the same way. Not
  // on virtual time.
  std::chrono::nanoseconds ran_for{0};
  // A context ends by its deadline.
  bool deadline_missed = false;
  // The process gets this signal; 0: none. The program must neither handle it, as a run
  // does with those of options::stop_on, nor ignore it.
  int signal = 0;

  // A file is `path`, a number and ".pftrace": the first number from 1 on that no file
  // has already, so that none is overwritten. Its name, and why it was written, go to
  // standard error.
  std::string path = "vigil-";
  // At most this many files after the call, and none sooner than `spacing`, in real time,
  // after the last one. One that cannot be written does not count: an event after that
  // time tries again. The reason is told once, and again after another or a written file.
  std::size_t files = 10;
  std::chrono::nanoseconds spacing = std::chrono::seconds{60};
};

// From now on writes a trace when one of these things happens: on a thread of its own, a
// moment later. On virtual time the run stands still meanwhile, so that the file ends
// with the event. A later call takes the place of an earlier one; with default options
// nothing is written any more. A child of fork() writes nothing until it calls this
// itself. Throws std::invalid_argument for a signal that cannot serve, and
// std::system_error if no thread can be started. Thread safety: any thread. Lifetime:
// until the next call. Shutdown: the end of a run does not end it. Cost: a thread that
// sleeps; each trace costs what write_trace does.
VIGIL_API void record_on(const record_options& options);

}  // namespace VIGIL_PUBLIC::inspect
