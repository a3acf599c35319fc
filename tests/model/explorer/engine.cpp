// A run: the program's threads as fibers of one system thread, begun, switched and ended;
// and one run after the other until the search is over.
#include "explorer/engine.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>

#include <boost/context/detail/fcontext.hpp>

#include <cxxabi.h>
#include <sys/mman.h>

namespace model {

engine* the_engine = nullptr;

namespace {

namespace fcontext = boost::context::detail;

constexpr std::size_t stack_size = 512 * 1024;

// While an instance exists, a program that follows a wild pointer has a fault, which ends
// its run and not the process. A crash of the explorer itself meets the previous handler.
class crashes_are_faults {
 public:
  crashes_are_faults() noexcept {
    struct sigaction action {};

    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_NODEFER;  // fail() leaves the handler by a switch of stacks
    action.sa_handler = on_crash;
    for (std::size_t i = 0; i < std::size(signals); ++i)
      ::sigaction(signals[i], &action, &earlier[i]);
  }

  ~crashes_are_faults() { put_back(); }

  crashes_are_faults(const crashes_are_faults&) = delete;
  crashes_are_faults& operator=(const crashes_are_faults&) = delete;

 private:
  static constexpr int signals[] = {SIGSEGV, SIGBUS};
  static inline struct sigaction earlier[std::size(signals)];

  static void put_back() noexcept {
    for (std::size_t i = 0; i < std::size(signals); ++i)
      ::sigaction(signals[i], &earlier[i], nullptr);
  }

  static void on_crash(int) {
    if (engine* const e = engine_of_program()) e->fail("memory is used that is not there");
    put_back();  // the instruction runs again and meets the earlier handler
  }
};

}  // namespace

struct thread_entry {
  // The first code of each thread, on its own stack.
  static void run(fcontext::transfer_t from) {
    static_cast<thread*>(from.data)->context = from.fctx;
    engine& e = engine::get();
    thread& self = e.threads_[e.current_];
    e.enter_locals(self);
    e.inside = false;
    try {
      self.start(self.argument);
    } catch (...) {
      e.fail("an exception leaves the thread");
    }
    e.end_thread();
  }
};

engine::engine() {
  void* const mapped = ::mmap(nullptr,
                              stack_size * max_threads,
                              PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                              -1,
                              0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  stacks_ = static_cast<std::byte*>(mapped);
  for (thread& t : threads_)
    t.locals.resize(thread_locals_size());
  main_.locals.resize(thread_locals_size());
}

engine& engine::get() {
  if (the_engine == nullptr) the_engine = new engine;
  return *the_engine;
}

// --- threads

void engine::leave_locals(thread& t) {
  std::memcpy(t.locals.data(), thread_locals(), t.locals.size());
  std::memcpy(t.exceptions.data(), abi::__cxa_get_globals(), sizeof t.exceptions);
  t.error_number = errno;
}

void engine::enter_locals(thread& t) {
  std::memcpy(thread_locals(), t.locals.data(), t.locals.size());
  std::memcpy(abi::__cxa_get_globals(), t.exceptions.data(), sizeof t.exceptions);
  errno = t.error_number;
}

void engine::switch_to(unsigned t) {
  thread& from = threads_[current_];
  leave_locals(from);
  current_ = t;
  ++switches_;
  const auto back = fcontext::jump_fcontext(threads_[t].context, &from);
  static_cast<thread*>(back.data)->context = back.fctx;
  enter_locals(threads_[current_]);
}

unsigned engine::create_thread(void (*start)(void*), void* argument) {
  reach({});
  if (thread_count_ == max_threads) fail("the program starts more threads than the explorer has");
  const unsigned t = thread_count_++;
  thread& made = threads_[t];
  made.start = start;
  made.argument = argument;
  made.state = thread_state::ready;
  made.next = {};
  made.context = fcontext::make_fcontext(
      stacks_ + stack_size * (t + 1) - 64, stack_size - 128, &thread_entry::run);
  std::memcpy(made.locals.data(), thread_locals_image(), made.locals.size());
  made.exceptions = {};
  if (t != 0) {
    memory_.hand_over(current_, t);
    comes_after(t, current_);
  }
  return t;
}

void engine::end_thread() {
  inside = true;
  threads_[current_].next = {};
  threads_[current_].state = thread_state::ended;
  memory_.tick(current_);
  ++writes_;
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (threads_[t].state != thread_state::ended) {
      schedule();
      break;
    }
  }
  end_run();
}

void engine::end_run() {
  inside = true;
  fcontext::jump_fcontext(main_.context, &threads_[current_]);
  std::abort();
}

void engine::fail(const std::string& fault) {
  inside = true;
  fault_ = fault;
  end_run();
}

void engine::ends(const void* start, std::size_t size) {
  if (!running_) return;
  const char* const fault = memory_.end_of(reinterpret_cast<std::uintptr_t>(start), size, current_);
  if (fault == nullptr) return;
  trace(__builtin_return_address(0), "%s", fault);
  fail(fault);
}

void engine::comes_after(unsigned to, unsigned from) {
  for (unsigned i = 0; i < max_threads; ++i) {
    threads_[to].clock[i] = std::max(threads_[to].clock[i], threads_[from].clock[i]);
  }
}

// --- runs

void engine::run_once(const std::function<void()>& program) {
  world_restore();
  memory_.begin_run();
  for (thread& t : threads_) {
    t.state = thread_state::absent;
    t.clock = {};
    t.futex = nullptr;
    t.repeated_at = -1;
    t.looked_at.fill(-1);
    t.in_vain_at = 0;
  }
  program_ = &program;
  depth_ = 0;
  last_decision_ = block_decision_ = -1;
  asleep_ = 0;
  writes_ = steps_ = idle_rounds_ = 0;
  switches_ = 1;
  observing = false;
  windows_ = 0;
  clock = 1'000'000'000;
  cut_ = false;
  fault_.clear();
  trace_.clear();
  history_.clear();
  current_ = 0;
  thread_count_ = 1;
  thread& first = threads_[0];
  first.state = thread_state::ready;
  first.start = [](void* self) { (*static_cast<engine*>(self)->program_)(); };
  first.argument = this;
  first.context =
      fcontext::make_fcontext(stacks_ + stack_size - 64, stack_size - 128, &thread_entry::run);
  std::memcpy(first.locals.data(), thread_locals_image(), first.locals.size());
  first.exceptions = {};
  leave_locals(main_);
  running_ = true;
  inside = true;
  fcontext::jump_fcontext(first.context, &main_);
  running_ = false;
  enter_locals(main_);
  inside = false;
  report_.longest = std::max(report_.longest, steps_);
}

report engine::explore(const std::function<void()>& program, const bounds& within) {
  const crashes_are_faults guard;
  report_ = {};
  bounds_ = within;
  path_.clear();
  replaying_ = false;
  tracing = false;
  uses_windows_ = false;
  world_begin();
  for (;;) {
    run_once(program);
    if (restart_) {
      restart_ = false;
      path_.clear();
      report_ = {};
      continue;
    }
    if (!cut_) ++report_.interleavings;
    if (!fault_.empty()) {
      report_.found = true;
      report_.fault = fault_;
      report_.schedule = schedule_text();
      break;
    }
    if (!next_run()) {
      report_.complete = true;
      break;
    }
    if (report_.states >= bounds_.states) break;
  }
  world_end();
  report r = report_;
  if (r.found) {
    const report again = replay(program, r.schedule);
    r.trace = again.trace;
  }
  return r;
}

report engine::replay(const std::function<void()>& program, const std::string& schedule) {
  const crashes_are_faults guard;
  report_ = {};
  bounds_ = {unlimited, unlimited, 0, false};
  path_.clear();
  replaying_ = true;
  tracing = true;
  parse_schedule(schedule);
  world_begin();
  run_once(program);
  world_end();
  replaying_ = false;
  tracing = false;
  report_.interleavings = 1;
  report_.found = !fault_.empty();
  report_.fault = fault_;
  report_.schedule = schedule;
  report_.trace = trace_text();
  return report_;
}

// A program that uses windows is explored only inside them: decisions before the first
// one are forgotten.
void engine::open_window() {
  ++windows_;
  if (uses_windows_) return;
  uses_windows_ = true;
  restart_ = true;
  end_run();
}

// --- for programs

report explore(const std::function<void()>& program, const bounds& within) {
  return engine::get().explore(program, within);
}

report replay(const std::function<void()>& program, const std::string& schedule) {
  return engine::get().replay(program, schedule);
}

}  // namespace model
