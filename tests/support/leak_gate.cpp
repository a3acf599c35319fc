// Watches every test and example of a build with -Dleak_gate=true for fibers that are
// called stuck for certain. A thread looks again and again; a fiber that was certain once
// and goes on while its run does is a mistake of the search, and ends the program. Each
// one that is certain is written to VIGIL_LEAK_GATE, a file, once; tools/leak_gate.py
// compares that with the list of the tests that leave fibers which wait for ever.
#include "core/machine/detached_thread.hpp"
#include "core/machine/process_threads.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/stuck_fibers.hpp"

#include <vigil/inspect.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include <unistd.h>

namespace vigil::testing_support {
namespace {

using namespace vigil::detail;

struct certain_fiber {
  stack where;
  std::uint32_t runs = 0;
};

// By the numbers of the runtime and of the fiber.
using fiber_key = std::pair<std::uint64_t, std::uint64_t>;

class leak_gate {
 public:
  explicit leak_gate(const char* path) : log_(std::fopen(path, "a")) {
    if (log_ == nullptr) {
      std::perror("leak_gate: VIGIL_LEAK_GATE cannot be opened");
      std::abort();
    }
    std::fprintf(log_, "%d: begins\n", ::getpid());
    std::fflush(log_);
    inspect::install();
    process_count_quiet_threads(1);
    start_detached([this] {
      process_is_quiet_thread();
      for (;;) {
        look();
        ::usleep(20'000);
      }
    });
  }

  void look() {
    const std::lock_guard guard(lock_);
    const handler_scope inside;
    const slab_hold hold;
    check_earlier();
    const stuck_list found = find_stuck_fibers();
    if (found.why_not != nullptr)
      std::fprintf(log_, "%d: no look: %s\n", ::getpid(), found.why_not);
    for (const waiting_fiber& f : found.fibers) {
      if (found.why_not == nullptr && f.way == open_way::none) note(f);
    }
    std::fflush(log_);
  }

 private:
  // Whether that run goes on.
  static bool goes_on(std::uint64_t runtime) {
    bool result = false;
    for_each_running([&](const scheduler& s, runtime_slot&) {
      result = result || (s.number() == runtime && s.state.phase() == run_phase::running);
    });
    return result;
  }

  void check_earlier() {
    for (auto one = earlier_.begin(); one != earlier_.end();) {
      fiber_view s;
      const bool is_there = take_view(one->second.where, s) && s.id == one->first.second &&
                            s.runs == one->second.runs && s.state == fiber_state::parked;
      if (is_there) {
        ++one;
        continue;
      }
      if (goes_on(one->first.first)) {
        std::fprintf(log_,
                     "%d: WRONG: fiber %llu went on\n",
                     ::getpid(),
                     static_cast<unsigned long long>(one->first.second));
        std::fflush(log_);
        std::abort();
      }
      one = earlier_.erase(one);
    }
  }

  void note(const waiting_fiber& f) {
    fiber_view s;
    if (!take_view(f.where, s) || s.id != f.id || s.runs != f.runs) return;
    std::uint64_t runtime = 0;
    for_each_running([&](const scheduler& one, runtime_slot&) {
      if (&one == s.sched) runtime = one.number();
    });
    if (runtime == 0) return;
    if (!earlier_.emplace(fiber_key{runtime, s.id}, certain_fiber{f.where, f.runs}).second) return;
    std::fprintf(log_,
                 "%d: certain: fiber %llu (%s) of %s:%u waits for %s\n",
                 ::getpid(),
                 static_cast<unsigned long long>(s.id),
                 s.name,
                 s.file,
                 s.line,
                 to_string(s.reason));
  }

  std::FILE* const log_;
  std::mutex lock_;
  std::map<fiber_key, certain_fiber> earlier_;
};

leak_gate* the_gate_of_tests = nullptr;

[[gnu::constructor(2000)]] void open_gate() {
  const char* const path = std::getenv("VIGIL_LEAK_GATE");
  if (path != nullptr && *path != '\0') the_gate_of_tests = new leak_gate(path);
}

}  // namespace

// Called at the end of each body by in_runtime() and in_virtual().
void look_for_leaks() {
  if (the_gate_of_tests != nullptr) the_gate_of_tests->look();
}

}  // namespace vigil::testing_support
