#include "inspect/stuck_fibers.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/machine/process_threads.hpp"
#include "core/machine/sanitizer.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/stopped_threads.hpp"
#include "inspect/stuck_search.hpp"

#include <cerrno>
#include <csignal>
#include <mutex>
#include <system_error>

#include <pthread.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// ThreadSanitizer delivers signals late, and its shadow is too large to be left out.
constexpr bool can_scan = VIGIL_TSAN == 0;

// The search runs on a thread of its own, whose stack lies in own memory.

struct search_work {
  own_memory& memory;
  std::uintptr_t caller_from;
  int caller;
  stuck_list& result;
  waiting_fiber* found = nullptr;  // in own memory
  std::size_t count = 0;
};

void* search(void* argument) {
  process_is_quiet_thread();
  auto& work = *static_cast<search_work*>(argument);
  stuck_search& all = *::new (work.memory.allocate(sizeof(stuck_search), alignof(stuck_search)))
                          stuck_search(work.memory, work.caller_from);
  {
    const stopped_threads stopped(work.memory, work.caller);
    work.result.why_not = stopped.why_not();
    if (stopped.all() && !all.run(stopped)) {
      work.result.why_not = "the process is too large, or was stopped at a bad moment";
    }
  }
  const std::size_t n = all.candidates();
  void* const room = work.memory.allocate((n + 1) * sizeof(waiting_fiber), alignof(waiting_fiber));
  work.found = static_cast<waiting_fiber*>(room);
  all.for_each_candidate(
      [&work](const waiting_fiber& f) { ::new (&work.found[work.count++]) waiting_fiber(f); });
  return nullptr;
}

std::size_t stacks_in_use() noexcept {
  std::size_t n = 0;
  for_each_stack_in_use([](const stack&, void* a) noexcept { ++*static_cast<std::size_t*>(a); },
                        &n);
  return n;
}

// Saves the caller's registers in this frame, where the scan finds them.
[[gnu::noinline]] void search_elsewhere(search_work& work) {
  __builtin_unwind_init();
  constexpr std::uintptr_t below = 1024;
  work.caller_from = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - below;
  pthread_attr_t how;
  ::pthread_attr_init(&how);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  process_count_quiet_threads(1);
  pthread_t thread{};
  int error = EINVAL;
  // The thread's thread_local variables lie there as well.
  for (std::size_t bytes = std::size_t{1} << 20; bytes <= std::size_t{16} << 20; bytes *= 4) {
    void* const room = work.memory.allocate(bytes, 4096);
    ::pthread_attr_setstack(&how, room, bytes);
    error = ::pthread_create(&thread, &how, &search, &work);
    if (error != EINVAL) break;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&how);
  if (error == 0) ::pthread_join(thread, nullptr);
  if (error != 0) {
    process_count_quiet_threads(-1);
    throw std::system_error(
        error, std::generic_category(), "vigil::inspect::find_stuck_fibers: no thread can be had");
  }
}

// Whether the scan can read anything: a sandbox may forbid it.
bool can_read_memory() noexcept {
  const volatile std::uintptr_t sample = 0x766967696c;
  std::uintptr_t copy = 0;
  const void* const at = const_cast<const std::uintptr_t*>(&sample);
  return read_memory(at, &copy, sizeof copy) && copy == sample;
}

std::mutex one_search;  // a thread that searches cannot be stopped by another

void search_whole(std::size_t stacks, stuck_list& result) {
  const std::lock_guard guard(one_search);
  constexpr std::size_t least = std::size_t{256} << 20;
  constexpr std::size_t for_each_fiber = std::size_t{16} << 10;
  own_memory memory(least + stacks * for_each_fiber);
  search_work work{memory, 0, ::gettid(), result};
  search_elsewhere(work);
  if (result.why_not == nullptr) result.fibers.assign(work.found, work.found + work.count);
}

// Without a look at what they wait for.
void list_waiting(const stack& where, void* argument) noexcept {
  auto& result = *static_cast<std::vector<waiting_fiber>*>(argument);
  fiber_view s;
  if (!take_view(where, s) || s.state != fiber_state::parked) return;
  if (s.until != never || !is_for_others(s.reason) || is_observers(s)) return;
  if (result.size() < result.capacity())
    result.push_back({where, s.id, s.runs, open_way::not_known, {}});
}

}  // namespace

bool is_observers(const fiber_view& s) noexcept {
  bool result = false;
  for_each_running([&](const scheduler& one, runtime_slot&) {
    result = result || (&one == s.sched && one.settings().is_observer);
  });
  return result;
}

stuck_list find_stuck_fibers() {
  stuck_list result;
  const std::size_t stacks = stacks_in_use();
  if (!can_scan) {
    result.why_not = "this build has ThreadSanitizer";
  } else if (!can_read_memory()) {
    result.why_not = "the system forbids process_vm_readv";
  } else {
    search_whole(stacks, result);
  }
  if (result.why_not != nullptr) {
    result.fibers.clear();
    result.fibers.reserve(stacks + 1024);
    for_each_stack_in_use(&list_waiting, &result.fibers);
  }
  return result;
}

}  // namespace VIGIL_DETAIL
