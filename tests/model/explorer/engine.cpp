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
#include <memory>

#include <boost/context/detail/fcontext.hpp>

#include <cxxabi.h>

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
    stack_t own{};
    own.ss_sp = stack_.get();
    own.ss_size = handlers_stack;
    ::sigaltstack(&own, &earlier_stack);

    struct sigaction action {};

    sigemptyset(&action.sa_mask);
    // fail() leaves the handler by a switch of stacks. A stack may itself be what begins.
    action.sa_flags = SA_NODEFER | SA_ONSTACK | SA_SIGINFO;
    action.sa_sigaction = on_crash;
    for (std::size_t i = 0; i < std::size(signals); ++i)
      ::sigaction(signals[i], &action, &earlier[i]);
  }

  ~crashes_are_faults() {
    put_back();
    ::sigaltstack(&earlier_stack, nullptr);
  }

  crashes_are_faults(const crashes_are_faults&) = delete;
  crashes_are_faults& operator=(const crashes_are_faults&) = delete;

 private:
  static constexpr int signals[] = {SIGSEGV, SIGBUS};
  static constexpr std::size_t handlers_stack = 64 * 1024;
  static inline struct sigaction earlier[std::size(signals)];
  static inline stack_t earlier_stack;

  std::unique_ptr<std::byte[]> stack_{new std::byte[handlers_stack]};

  static void put_back() noexcept {
    for (std::size_t i = 0; i < std::size(signals); ++i)
      ::sigaction(signals[i], &earlier[i], nullptr);
  }

  static void on_crash(int, siginfo_t* info, void*) {
    if (begins_page(info->si_addr)) return;
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
  stacks_ = reserve_pages(stack_size * max_threads);
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

// From the latest checkpoint that the decisions to be taken share, or from the beginning.
void engine::run_once(const std::function<void()>& program) {
  if (!return_to_checkpoint()) begin_run(program);
  enter_program();
  report_.longest = std::max(report_.longest, steps_);
}

void engine::begin_run(const std::function<void()>& program) {
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
  static_cast<run_state&>(*this) = {};
  fault_.clear();
  trace_.clear();
  history_.clear();
  thread& first = threads_[0];
  first.state = thread_state::ready;
  first.start = [](void* self) { (*static_cast<engine*>(self)->program_)(); };
  first.argument = this;
  first.context =
      fcontext::make_fcontext(stacks_ + stack_size - 64, stack_size - 128, &thread_entry::run);
  std::memcpy(first.locals.data(), thread_locals_image(), first.locals.size());
  first.exceptions = {};
}

// Until the run ends. A thread comes back in between when it asks for a checkpoint.
void engine::enter_program() {
  leave_locals(main_);
  running_ = true;
  inside = true;
  for (;;) {
    const auto back = fcontext::jump_fcontext(threads_[current_].context, &main_);
    if (!asks_checkpoint_) break;
    asks_checkpoint_ = false;
    static_cast<thread*>(back.data)->context = back.fctx;
    take_checkpoint();
  }
  running_ = false;
  enter_locals(main_);
  inside = false;
}

bool engine::is_unused_stack(const void* address, unsigned threads) const noexcept {
  const auto* const at = static_cast<const std::byte*>(address);
  return at >= stacks_ + stack_size * threads && at < stacks_ + stack_size * max_threads;
}

report engine::explore(const std::function<void()>& program, const bounds& within) {
  const crashes_are_faults guard;
  report_ = {};
  bounds_ = within;
  path_.clear();
  checkpoint_count_ = 0;
  replaying_ = false;
  tracing = false;
  uses_windows_ = false;
  world_begin();
  for (;;) {
    run_once(program);
    if (restart_) {
      restart_ = false;
      path_.clear();
      checkpoint_count_ = 0;
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
  checkpoint_count_ = 0;
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
