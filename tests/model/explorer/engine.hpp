// The explorer's inside: threads as fibers, the search, the memory.
//
//   hooks.cpp      the calls of the instrumented code    ──▶ engine
//   system.cpp     futex, clock, threads, mutexes        ──▶ engine
//   program.cpp    the calls of a test's program         ──▶ engine
//   exceptions.cpp the memory of exceptions              ──▶ world
//   engine.cpp     a run: threads as fibers; run after run
//   checkpoint.cpp moments of a run from which the next one may begin
//   search.cpp     the thread that goes on, and the choices left to try
//   reduction.cpp  the orders that need not be tried
//   text.cpp       schedules and traces as text
//   memory.cpp     the values that a load may see; races on plain memory
//   world.cpp      the program's memory, the same before each run
//   pages.cpp      large regions of which a program uses few pages
//
// Everything here runs on one thread of the operating system and is compiled without
// instrumentation. Nothing of it lies in the program's static memory, which is put back
// before each run.
#pragma once

#include "explorer/explorer.hpp"
#include "explorer/memory.hpp"
#include "explorer/world.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace model {

// --- threads

enum class thread_state : std::uint8_t {
  absent,
  ready,     // at an operation, or at its start
  paused,    // spins: waits for another thread's write
  sleeping,  // in a futex wait
  joining,   // waits for a thread's end
  waiting,   // in wait_until()
  locked,    // waits for a mutex of the operating system
  ended,
};

// The operation that a thread is about to do.
struct pending {
  std::int64_t location = -1;
  bool writes = false;
};

// The clock is a location of its own: timeouts write it.
inline constexpr unsigned clock_location = 0;

struct thread {
  thread_state state = thread_state::absent;
  void* context = nullptr;
  void (*start)(void*) = nullptr;
  void* argument = nullptr;
  pending next;
  std::uint64_t paused_at = 0;   // the count of writes when it paused
  std::uint64_t in_vain_at = 0;  // the count of switches at its last wait in vain
  const void* futex = nullptr;   // sleeping: the word
  std::int64_t until = 0;        // sleeping: the deadline
  bool timed_out = false;
  unsigned joined = 0;
  bool (*condition)(void*) = nullptr;
  void* condition_argument = nullptr;
  const void* mutex = nullptr;
  step_clock clock{};             // for the reduction
  std::vector<std::byte> locals;  // its copy of the program's thread-locals
  std::array<std::uint64_t, 2> exceptions{};
  int error_number = 0;
  std::uint16_t repeated = 0;  // reads of one stale value in a row
  std::int64_t repeated_at = -1;
  std::array<std::int64_t, 4> looked_at{};  // its latest loads' locations, -1: none
  std::uint8_t looks = 0;

  void looks_at(unsigned location) noexcept {
    looked_at[looks++ % looked_at.size()] = static_cast<std::int64_t>(location);
  }
};

// --- the search

struct decision {
  enum class kind : std::uint8_t { thread, value };
  kind what = kind::thread;
  bool open = false;  // inside a window: alternatives are tried
  // for a thread
  std::uint8_t previous = 0;  // the thread that ran before
  std::uint8_t taken = 0;     // the thread that runs now
  thread_mask ready = 0;
  thread_mask enabled = 0;  // `ready`, and the sleepers whose deadline may come
  thread_mask wanted = 0;   // to be tried, says the reduction
  thread_mask done = 0;     // tried
  thread_mask asleep = 0;   // tried before, and no operation since has met it
  // for a value: 0 is the newest
  std::uint16_t choices = 0;
  std::uint16_t chosen = 0;
  // the budget used up before this decision
  std::int16_t preemptions = 0;
  std::int16_t stale = 0;
};

// The part of the engine that a run changes, beside the threads and the memory.
struct run_state {
  std::int64_t clock = 1'000'000'000;
  // Loads see the newest value, and no other thread gets a turn.
  bool observing = false;
  unsigned current_ = 0;
  unsigned thread_count_ = 1;
  std::size_t depth_ = 0;
  bool cut_ = false;
  std::int32_t last_decision_ = -1;   // the one that chose the present operation; -1: none
  std::int32_t block_decision_ = -1;  // the one that gave the turn to the present thread
  thread_mask asleep_ = 0;
  std::uint64_t writes_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t switches_ = 1;
  std::uint64_t steps_ = 0;
  std::uint64_t idle_rounds_ = 0;
  int windows_ = 0;
};

// A moment of a run, just before a decision.
struct checkpoint {
  run_state run;
  std::array<thread, max_threads> threads;
  std::size_t history = 0;
  memory::moment values;
  world_moment world;
};

class engine : run_state {
 public:
  using run_state::clock;
  using run_state::observing;

  static engine& get();

  report explore(const std::function<void()>& program, const bounds& within);
  report replay(const std::function<void()>& program, const std::string& schedule);

  bool running() const noexcept { return running_; }

  unsigned current() const noexcept { return current_; }

  memory& mem() noexcept { return memory_; }

  thread& of(unsigned t) noexcept { return threads_[t]; }

  // Called before each operation: stops until the thread is chosen, and then counts the
  // operation as done.
  void reach(const pending& next);
  // An operation that needs no choice, such as a timeout.
  void record(const pending& done);
  // Chooses one of n values, the newest first; outside a window only the newest.
  std::uint16_t choose_value(std::uint16_t n);

  // Writes a line of the trace, for the calling code.
  template <class... Values>
  void trace(const void* from, const char* format, Values... values) {
    if (tracing) write_trace(from, format, values...);
  }

  // Gives the turn away until the thread's state is ready again.
  void block();
  [[noreturn]] void fail(const std::string& fault);
  [[noreturn]] void end_run();
  // Gives back memory that others may still use.
  void ends(const void* start, std::size_t size);
  [[noreturn]] void end_thread();

  unsigned create_thread(void (*start)(void*), void* argument);

  std::uint64_t next_arrival() noexcept { return ++arrivals_; }

  void wrote() noexcept {
    ++writes_;
    idle_rounds_ = 0;
  }

  std::uint64_t writes() const noexcept { return writes_; }

  void open_window();

  void close_window() noexcept { --windows_; }

  bool exploring() const noexcept { return !uses_windows_ || windows_ > 0; }

  // Lets threads that sleep on `word` (nullptr: any) until a deadline time out before
  // this operation.
  void offer_timeouts(const void* word);
  // Orders everything that `from` has done before what `to` does next.
  void comes_after(unsigned to, unsigned from);

  // The order with which the operation at `from` is done.
  order order_at(const void* from, order written, access what) {
    return watches_orders || !weakened.empty() ? watched_order(from, written, what) : written;
  }

  std::set<std::string> outcomes;
  bool watches_orders = false;
  std::set<order_site> order_sites;
  std::set<unsigned long> weakened;
  bool tracing = false;
  // The engine itself runs, on whatever stack: its operations and allocations are not the
  // program's.
  bool inside = false;

  // The number of times the turn went from one thread to another.
  std::uint64_t switches() const noexcept { return switches_; }

  bool can_run(unsigned t);

  // A stack of a thread that was not started yet, if `threads` were.
  bool is_unused_stack(const void* address, unsigned threads) const noexcept;

 private:
  engine();
  friend struct thread_entry;
  order watched_order(const void* from, order written, access what);
  void run_once(const std::function<void()>& program);
  void begin_run(const std::function<void()>& program);
  void enter_program();
  void consider_checkpoint();
  void take_checkpoint();
  bool return_to_checkpoint();
  bool next_run();
  thread_mask enabled_threads();
  void schedule();
  unsigned choose_thread();
  unsigned choose_without_ready();
  void count_budget(decision& d) const;
  thread_mask may_sleep(const decision& d) const noexcept;
  unsigned decide(thread_mask ready, thread_mask enabled, unsigned usual);
  void switch_to(unsigned t);
  void leave_locals(thread& t);
  void enter_locals(thread& t);
  std::string schedule_text() const;
  std::string trace_text() const;
  void write_trace(const void* from, const char* format, ...) __attribute__((format(printf, 3, 4)));
  void parse_schedule(const std::string& text);
  bool affords(const decision& d, unsigned t) const noexcept;
  void want(std::int32_t decision_index, unsigned t);
  void want_before(unsigned q,
                   const location::access& a,
                   unsigned t,
                   const step_clock& clock_of_present);
  bool uses_sleep() const noexcept;

  std::unordered_map<const void*, unsigned long> offsets_;
  memory memory_;
  std::array<thread, max_threads> threads_;
  bool running_ = false;
  std::byte* stacks_ = nullptr;

  bounds bounds_;
  std::vector<decision> path_;
  bool replaying_ = false;
  bool restart_ = false;
  std::vector<std::uint16_t> script_;
  thread main_;
  // Those of the present run, the earliest first; others are there to be used again.
  std::vector<std::unique_ptr<checkpoint>> checkpoints_;
  std::size_t checkpoint_count_ = 0;
  bool asks_checkpoint_ = false;

  struct past_step {
    unsigned thread;
    step_clock after;  // the steps that it comes after, including itself
  };

  std::vector<past_step> history_;
  std::vector<std::size_t> between_;
  bool uses_windows_ = false;
  report report_;
  std::string fault_;

  struct trace_line {
    unsigned thread;
    const void* from;
    std::string text;
  };

  std::vector<trace_line> trace_;
  const std::function<void()>* program_ = nullptr;
};

// Made by the first exploration, and never destroyed.
extern engine* the_engine;

// The engine, if the program calls; nullptr otherwise.
inline engine* engine_of_program() noexcept {
  engine* const e = the_engine;
  return e != nullptr && e->running() && !e->inside ? e : nullptr;
}

// While an instance exists, the engine's own work does not count as the program's.
class inside_engine {
 public:
  explicit inside_engine(engine& e) noexcept : engine_(e) { e.inside = true; }

  ~inside_engine() { engine_.inside = false; }

  inside_engine(const inside_engine&) = delete;
  inside_engine& operator=(const inside_engine&) = delete;

 private:
  engine& engine_;
};

}  // namespace model
