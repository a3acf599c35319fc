// The explorer: runs a small program of a few threads again and again, each time in
// another interleaving, until none is left that differs.
//
// The program is real code. It and the library's sources are compiled with the compiler's
// thread instrumentation (-fsanitize=thread), but linked with the explorer in place of
// the sanitizer's run-time: so each atomic operation with its memory order, and each
// plain access to memory, comes here first. Futex, clock, threads and memory are the
// explorer's as well (world.cpp).
//
// At each atomic operation the explorer chooses the thread that goes on, and for each
// load the value that it sees, among those that C++ allows. Faults are: a requirement
// that does not hold, a data race on plain memory, memory used after it was freed, a
// program that ends in fatal() or an uncaught exception, threads that all wait for ever,
// and a thread that spins for ever.
//
// How to write a model test: docs/internals/model.md.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

namespace model {

inline constexpr int unlimited = -1;

struct bounds {
  // How often a thread that could go on must wait for another.
  int preemptions = 2;
  // How many loads of an interleaving may see an older value than the newest.
  int stale_reads = 1;
  // Gives up after this many states.
  std::uint64_t states = 10'000'000;
  // Leaves out interleavings that differ only in the order of operations on different
  // memory.
  bool reduce = true;
  // Begins a run at the latest moment that it shares with the one before: faster, and
  // otherwise the same.
  bool checkpoints = true;
};

struct report {
  bool complete = false;  // every interleaving within the bounds was run
  bool found = false;     // a fault
  std::string fault;      // a description; empty without one
  std::string schedule;   // the decisions that lead to it: replay() takes it
  std::string trace;      // each thread's operations, one a line
  std::uint64_t interleavings = 0;
  std::uint64_t states = 0;   // decisions reached: for a thread or a value
  std::uint64_t longest = 0;  // operations in the longest interleaving
};

// Runs `program` in every interleaving within the bounds, until one shows a fault. The
// program runs on thread 0 and may start three more with std::thread; each run starts
// from the same memory, so the program must make the objects that it uses.
report explore(const std::function<void()>& program, const bounds& within);

// Runs it once, by the schedule. The trace is filled in any case.
report replay(const std::function<void()>& program, const std::string& schedule);

// --- called by the program

// A fault unless `holds`.
void require(bool holds, const char* what);

// Ends the run without a fault once none of the other threads can go on: for programs
// that have shown everything before their own end.
[[noreturn]] void enough();

// While no window exists, no thread is preempted, and loads see the newest value: for the
// parts of a program that only lead up to the proof. A program that never uses one is
// explored from its beginning to its end.
class window {
 public:
  window();
  ~window();
  window(const window&) = delete;
  window& operator=(const window&) = delete;
};

// Waits, for ever if need be, until `condition` holds, and then stays true; its loads see
// the newest values. It stands for a thread that its user keeps busy.
void wait_until(bool (*condition)(void*), void* argument);

template <class F>
void wait_until(F&& condition) {
  wait_until([](void* f) { return static_cast<bool>((*static_cast<F*>(f))()); }, &condition);
}

// The explorer's clock, in nanoseconds. It moves when a wait with a deadline
// times out, and by advance().
std::int64_t now();
void advance(std::int64_t nanoseconds);

// Adds to the set of all outcomes of all runs. The test takes that set with
// take_outcomes(), which begins a new one.
void note_outcome(const std::string& text);
std::set<std::string> take_outcomes();

// --- for tools/weaken_orders.py

// A place in the code, as an offset in the program's file, with an atomic operation whose
// order is stronger than relaxed.
struct order_site {
  unsigned long offset = 0;
  const char* what = "";   // load, store, modify
  const char* order = "";  // as written

  bool operator<(const order_site& other) const noexcept { return offset < other.offset; }
};

// The sites met since the last call. The first call begins the watch.
std::set<order_site> take_order_sites();

// From now on these sites use the next weaker order.
void weaken_orders(const std::set<unsigned long>& offsets);

}  // namespace model
