// The explorer's inside: threads as fibers, the search, the memory.
//
//   hooks.cpp      the calls of the instrumented code    ──▶ engine
//   system.cpp     futex, clock, threads, mutexes        ──▶ engine
//   program.cpp    the calls of a test's program         ──▶ engine
//   engine.cpp     a run: threads as fibers; run after run
//   search.cpp     the thread that goes on, and the choices left to try
//   reduction.cpp  the orders that need not be tried
//   text.cpp       schedules and traces as text
//   memory.cpp     the values that a load may see; races on plain memory
//   world.cpp      the program's memory, the same before each run
//
// Everything here runs on one thread of the operating system and is compiled without
// instrumentation. Nothing of it lies in the program's static memory, which is put back
// before each run.
#pragma once

#include "explorer/explorer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace model {

inline constexpr unsigned max_threads = 6;

using thread_mask = std::uint32_t;

constexpr thread_mask bit(unsigned t) noexcept {
  return thread_mask{1} << t;
}

using step_clock = std::array<std::uint32_t, max_threads>;

enum class access : std::uint8_t { load, store, modify };

enum class order : std::uint8_t { relaxed, acquire, release, acq_rel, seq_cst };

constexpr bool acquires(order o) noexcept {
  return o == order::acquire || o == order::acq_rel || o == order::seq_cst;
}

constexpr bool releases(order o) noexcept {
  return o == order::release || o == order::acq_rel || o == order::seq_cst;
}

// --- memory

// The knowledge of a thread or a message: for each location the oldest value that may
// still be read, and for each thread the last step known of it.
struct view {
  step_clock heard{};
  std::vector<std::uint16_t> oldest;  // by location; missing ones are 0

  std::uint16_t at(unsigned location) const noexcept {
    return location < oldest.size() ? oldest[location] : std::uint16_t{0};
  }

  void raise(unsigned location, std::uint16_t to);
  void join(const view& other);
};

struct message {
  std::uint64_t value = 0;
  bool carries = false;  // a view that acquiring readers take over
  view known;
};

// One atomic object during one run.
struct location {
  const void* address = nullptr;
  unsigned size = 0;
  std::vector<message> history;  // in modification order
  std::size_t length = 0;        // the part of the history in use
  std::uint16_t last_seq_cst = 0;

  // For the reduction: the last access of each thread, and the steps that any later
  // access comes after.
  struct access {
    std::uint32_t step = 0;  // in its thread; 0: none
    std::int32_t decision = -1;
    std::int32_t block = -1;
  };

  std::array<access, max_threads> last_write{};
  std::array<access, max_threads> last_any{};
  step_clock after_writes{};
  step_clock after_all{};
};

class memory {
 public:
  memory();
  void begin_run();

  unsigned find(const void* address, unsigned size, unsigned thread);

  location& at(unsigned l) { return locations_[l]; }

  std::size_t count() const noexcept { return used_; }

  view& of_thread(unsigned thread) { return views_[thread]; }

  // The oldest message that the thread may read.
  std::uint16_t oldest_readable(unsigned l, unsigned thread, order o);
  std::uint64_t read(unsigned l, unsigned thread, std::uint16_t which, order o);
  // Appends a message; `continues`: a read-modify-write, which carries on what its
  // predecessor carried.
  void write(unsigned l, unsigned thread, std::uint64_t value, order o, bool continues);

  // A plain access; returns a description of the fault, or nullptr.
  const char* plain(std::uintptr_t address, std::size_t size, bool is_write, unsigned thread);
  const char* atomic_access(std::uintptr_t address, std::size_t size, unsigned thread);

  // Gives a thread's knowledge to one that starts, or that joins it.
  void hand_over(unsigned from, unsigned to);

  // After a release: others do not yet know of later steps.
  void tick(unsigned thread) { ++views_[thread].heard[thread]; }

  void see_newest(unsigned thread, unsigned l);

  bool is_behind(unsigned thread, unsigned l) const noexcept {
    return views_[thread].at(l) + 1u < locations_[l].length;
  }

  // The memory is given back: counts as a write to all of it.
  const char* end_of(std::uintptr_t start, std::size_t size, unsigned thread);

 private:
  struct shadow_cell {
    std::uintptr_t granule = 0;
    std::uint32_t run = 0;
    std::uint8_t atomics = 0;  // bytes at which an atomic object begins
    std::array<std::uint32_t, max_threads> wrote{};
    std::array<std::uint32_t, max_threads> read{};
    std::array<std::uint8_t, max_threads> wrote_bytes{};
    std::array<std::uint8_t, max_threads> read_bytes{};
  };

  static constexpr unsigned no_location = UINT32_MAX;

  shadow_cell& cell(std::uintptr_t granule);
  // Whether a cell may be in use there, in this run.
  bool has_cells(std::uintptr_t address, std::size_t size) const;
  void forget(std::uintptr_t start);

  std::vector<location> locations_;
  std::size_t used_ = 0;
  std::array<view, max_threads> views_;
  std::vector<shadow_cell> cells_;
  std::vector<std::uint32_t> cells_in_use_;  // in this run
  std::vector<std::uint32_t> blocks_;  // by hash, of 16 granules: the last run that touched one

  struct place {
    const void* address = nullptr;
    std::uint32_t run = 0;
    unsigned location = 0;
  };

  std::vector<place> places_;
  std::uint32_t run_ = 0;
  bool one_thread_ = true;  // of this run, so far
};

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

class engine {
 public:
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
  void trace(const void* from, const char* format, ...) __attribute__((format(printf, 3, 4)));

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

  std::int64_t clock = 1'000'000'000;
  std::set<std::string> outcomes;
  bool watches_orders = false;
  std::set<order_site> order_sites;
  std::set<unsigned long> weakened;
  bool tracing = false;
  // The engine itself runs, on whatever stack: its operations and allocations are not the
  // program's.
  bool inside = false;
  // Loads see the newest value, and no other thread gets a turn.
  bool observing = false;

  // The number of times the turn went from one thread to another.
  std::uint64_t switches() const noexcept { return switches_; }

  bool can_run(unsigned t);

 private:
  engine();
  friend struct thread_entry;
  order watched_order(const void* from, order written, access what);
  void run_once(const std::function<void()>& program);
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
  unsigned current_ = 0;
  unsigned thread_count_ = 0;
  bool running_ = false;
  std::byte* stacks_ = nullptr;

  bounds bounds_;
  std::vector<decision> path_;
  std::size_t depth_ = 0;
  bool replaying_ = false;
  bool cut_ = false;
  bool restart_ = false;
  std::vector<std::uint16_t> script_;
  std::int32_t last_decision_ = -1;   // the one that chose the present operation; -1: none
  std::int32_t block_decision_ = -1;  // the one that gave the turn to the present thread
  thread_mask asleep_ = 0;
  thread main_;

  struct past_step {
    unsigned thread;
    step_clock after;  // the steps that it comes after, including itself
  };

  std::vector<past_step> history_;
  std::vector<std::size_t> between_;
  std::uint64_t writes_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t switches_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t idle_rounds_ = 0;
  int windows_ = 0;
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

// --- the world (world.cpp)

void world_begin();    // remembers the program's static memory
void world_restore();  // puts it back, and frees everything that the last run allocated
void world_end();
bool freed_memory(const void* address) noexcept;
void stacks_begin();  // stacks.cpp: the stacks of the program's fibers
bool released_stack(const void* address) noexcept;
// The engine gives each thread its own copy at the same place: the program's
// thread-locals, the C++ library's exceptions, errno.
bool is_thread_local(const void* address) noexcept;
std::size_t thread_locals_size() noexcept;
std::byte* thread_locals() noexcept;
const void* thread_locals_image() noexcept;
void* allocate(std::size_t size);  // for the program, until the run ends

}  // namespace model
