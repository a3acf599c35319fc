// Fibers that can never go on, in a program that does. This is a part of the library
// vigil-inspect.
//
//   testing::run_virtual([] {
//     serve_one_request();
//     vigil::testing::check_no_leaks();
//   });
//
// docs/guide/testing.md says how it is known, and what cannot be known.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/detail/config.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace VIGIL_PUBLIC::inspect {

// stuck_fiber: a fiber in a stuck_report. Throws std::bad_alloc when it is copied. Thread
// safety: a plain value.
struct stuck_fiber {
  std::uint64_t id = 0;
  std::uint64_t runtime = 0;  // its number: those of fibers are each runtime's own
  std::string name;
};

// stuck_report: the fibers that find_stuck_fibers() has found. Throws std::bad_alloc when
// it is copied. Thread safety: a plain value. Lifetime: a copy; the fibers may have gone.
struct stuck_report {
  // They go on only if their runtime is shut down.
  std::vector<stuck_fiber> certain;
  // The others that wait without a deadline for something that fibers and threads do.
  // Most of them wait for good reason.
  std::vector<stuck_fiber> possible;
  // Why `certain` is empty although there may be such fibers; "" if it is whole.
  std::string why_none_certain;
  // As a dump has them: where each was started, its wait, for a possible one what might
  // end that, and the frames, once for those that have the same.
  std::string text;
};

// Looks for fibers that can never go on: those that wait for each other, as the holders
// of locks or to join; and those that wait for a channel, a context, a lock or a count
// that nothing but such fibers can reach. A lock counts as given back by its holder
// alone, which is known if install() was called before it was taken.
//
// Cost: stops all threads while it reads the memory of the process, up to ten
// milliseconds for each ten megabytes that have been touched, and two seconds for each
// terabyte that is reserved; where the system does not tell what has been touched, as in
// a process that has changed its user, all of it is read. It reserves 256 MiB of
// addresses. It stops them by the signal of install(), which need not have been called if
// no thread but the caller's exists; system calls that never restart, such as nanosleep,
// end with EINTR. The process must not be forked meanwhile.
//
// A value that looks like a pointer counts as one, so a fiber may be missing from
// `certain`; none is in it wrongly, as long as no pointer is kept in disguise: encoded,
// at an address that is no multiple of four, in memory that cannot be read, or in the
// kernel alone (the data of an epoll set, bytes in a pipe).
//
// Shutdown: a fiber that waits for nothing but the shutdown of its runtime counts as
// certain, since it goes on only then; main does not, which waits so in a server.
//
// Throws std::bad_alloc, and std::system_error if no thread can be had or reading the
// names of functions takes longer than 20 s. Thread safety: any thread or fiber, whose
// worker is then kept; not a signal handler.
VIGIL_API stuck_report find_stuck_fibers();

// Writes the text of that report. Throws what find_stuck_fibers throws. Thread safety:
// that of find_stuck_fibers. Lifetime: `out` is used during the call. Shutdown: that of
// find_stuck_fibers. Cost: that of find_stuck_fibers.
VIGIL_API void dump_stuck_fibers(std::FILE* out);

}  // namespace VIGIL_PUBLIC::inspect

namespace VIGIL_PUBLIC::testing {

// leak: thrown by check_no_leaks(). Its text has the lines of each fiber. Thread safety:
// that of std::runtime_error.
class leak : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// leak_options: the settings of check_no_leaks(). Throws nothing. Thread safety: a plain
// value.
struct leak_options {
  // Whether possible leaks fail as well: every fiber that waits without a deadline.
  bool possible = false;
  // On real time: for how long other fibers of the runtime may still be about to end, or
  // to wait. Zero or negative: they may not.
  std::chrono::nanoseconds patience = std::chrono::seconds(1);
};

// Looks for fibers that can never go on; `leak` is thrown if there is one. On virtual
// time it first waits until every other fiber has done what it can at this instant
// (settle()); on real time until none is ready to run or runs, and as long as a thread
// cannot be stopped in time, for `patience` at most. The caller is not a leak, and what
// it can reach may still wake others: leave the scope of the code under test first. The
// fibers of all runtimes of the process are looked at. If nothing can be certain
// (why_none_certain), it says so once on standard error, and throws only with
// leak_options::possible. Thread safety: any fiber. Lifetime: the options are used during
// the call. Shutdown: that of find_stuck_fibers. Cost: that of find_stuck_fibers. Go:
// goleak.VerifyNone.
//
// Waits on a fiber: throws stopped, and as inspect::find_stuck_fibers() and settle() do.
VIGIL_API void check_no_leaks(const leak_options& options = {});

}  // namespace VIGIL_PUBLIC::testing
