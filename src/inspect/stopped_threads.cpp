// The thread that stops and the handlers on the others share one gate.
//
// HT1 One thread stops others at a time: it holds the lock of the askers
//     (running_frames.hpp).
// HT2 A round is odd while the gate is closed. The list of threads is written before it
//     closes, is only added to (count), and stays until each thread that has noted itself
//     as inside is out again: so a handler that came late finds the gate open, or a list
//     that is there.
// HT3 A handler is counted from before it looks at the round; opening the gate waits
//     until none is inside.
// HT4 All have stopped if a whole look at the list of threads finds none that runs or has
//     just gone, and if as many have stopped as the process has: a thread may start
//     another before it goes, and the list leaves some out while it gets shorter.
#include "inspect/stopped_threads.hpp"

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/futex.hpp"
#include "core/machine/sanitizer.hpp"
#include "inspect/running_frames.hpp"
#include "inspect/thread_files.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

struct listed_thread {
  atomic<int> id{0};
  atomic<bool> is_stopped{false};
  // Written before it has stopped: where it was interrupted, and where its handler is.
  std::uintptr_t stack_pointer = 0;
  std::uintptr_t handler = 0;
};

constexpr std::size_t most_threads = 16384;
constexpr nanos stop_patience = 200'000'000;
constexpr nanos for_each_more = 1'000'000;

constexpr const char* blocks_signal =
    "a thread blocks the signal that install() was given, or waits for it by sigwait()";

struct gate {
  futex_word round{0};
  futex_word stopped{0};  // counts those that have come in
  atomic<unsigned> inside{0};
  atomic<listed_thread*> threads{nullptr};
  atomic<std::size_t> count{0};
};

constinit gate the_gate;

// The word after the key in /proc/self/task/<id>/status.
std::string_view status_of(int thread,
                           std::string_view key,
                           char* text,
                           std::size_t size) noexcept {
  return word_after(key, read_thread_file(thread, "/status", text, size));
}

// False if that cannot be known, as without a free descriptor.
bool has_gone(int thread) noexcept {
  char text[4096];
  const std::string_view state = status_of(thread, "\nState:", text, sizeof text);
  if (state.empty()) return errno == ENOENT || errno == ESRCH;
  return state[0] == 'Z' || state[0] == 'X';
}

// The first thread of a process may end before the others, and then stays in the list.
bool is_ended_main(int thread) noexcept {
  return thread == ::getpid() && has_gone(thread);
}

// Whether the thread is a part of the kernel, which works for io_uring: it runs no code
// of the program, and hears no signal.
bool is_kernels(int thread) noexcept {
  constexpr unsigned io_worker = 0x10;
  constexpr int fields_before = 6;  // from the state to the flags
  char text[1024];
  std::string_view rest = read_thread_file(thread, "/stat", text, sizeof text);
  rest.remove_prefix(std::min(rest.rfind(')') + 2, rest.size()));
  for (int i = 0; i < fields_before; ++i)
    rest.remove_prefix(std::min(rest.find(' ') + 1, rest.size()));
  unsigned flags = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), flags);
  return (flags & io_worker) != 0;
}

std::size_t thread_count() noexcept {
  char text[4096];
  const std::string_view count = status_of(::gettid(), "\nThreads:", text, sizeof text);
  std::size_t n = 0;
  std::from_chars(count.data(), count.data() + count.size(), n);
  return n;
}

bool blocks(int thread, int signal) noexcept {
  char text[4096];
  const std::string_view mask = status_of(thread, "\nSigBlk:", text, sizeof text);
  std::uint64_t bits = 0;
  std::from_chars(mask.data(), mask.data() + mask.size(), bits, 16);
  return (bits >> (signal - 1) & 1) != 0;
}

// Calls f with the id of each thread. False if the system does not list them.
template <class F>
bool for_each_thread(F&& f) noexcept {
  const int fd = ::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  alignas(8) char entries[8192];
  for (;;) {
    const long n = ::syscall(SYS_getdents64, fd, entries, sizeof entries);
    if (n <= 0) break;
    for (long at = 0; at < n;) {
      constexpr std::size_t length_at = 16;
      constexpr std::size_t name_at = 19;
      unsigned short length = 0;
      std::memcpy(&length, entries + at + length_at, sizeof length);
      const std::string_view name(entries + at + name_at);
      int id = 0;
      if (std::from_chars(name.data(), name.data() + name.size(), id).ec == std::errc()) f(id);
      at += length;
    }
  }
  ::close(fd);
  return true;
}

bool send_stop(int thread, int signal) noexcept {
  siginfo_t info = {};
  info.si_signo = signal;
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_ptr = &the_gate;
  return ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), thread, signal, &info) == 0;
}

listed_thread* find_listed(int id) noexcept {
  listed_thread* const all = the_gate.threads.load();
  const std::size_t count = the_gate.count.load();
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i].id.load() == id) return &all[i];
  }
  return nullptr;
}

}  // namespace

bool stay_stopped(const siginfo_t& info, std::uintptr_t stack_pointer) noexcept {
  gate& g = the_gate;
  const bool is_ours = info.si_code == SI_QUEUE && info.si_value.sival_ptr == &g;
  bool has_stopped = false;
  g.inside.fetch_add(1);  // HT3
  const std::uint32_t round = g.round.load();
  if ((round & 1) != 0) {
    if (listed_thread* const self = find_listed(::gettid())) {
      has_stopped = true;
      self->stack_pointer = stack_pointer;
      self->handler = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
      self->is_stopped.store(true);
      g.stopped.fetch_add(1);
      futex_wake_one(g.stopped);
      while (g.round.load() == round)
        futex_wait(g.round, round, never);
    }
  }
  g.inside.fetch_sub(1);
  return is_ours || (has_stopped && has_lost_info(info));
}

stopped_threads::stopped_threads(own_memory& memory, int waiting)
    : signal_(begin_asking()), memory_(memory) {
  why_not_ = stop_all(waiting);
}

// A thread that starts another one, is being started or ends blocks all signals for a
// moment. Those that do so for ever are found here, while no thread is stopped.
const char* stopped_threads::wait_for_signals(int waiting) const noexcept {
  const char* why_not = nullptr;
  const int self = ::gettid();
  for_each_thread([&](int id) {
    if (signal_ == 0 || id == self || id == waiting) return;
    if (!blocks(id, signal_) || is_kernels(id)) return;
    const nanos until = monotonic_now() + stop_patience;
    while (why_not == nullptr && blocks(id, signal_) && !has_gone(id)) {
      if (monotonic_now() >= until) why_not = blocks_signal;
      ::usleep(100);
    }
  });
  return why_not;
}

const char* stopped_threads::stop_all(int waiting) {
  gate& g = the_gate;
  void* const place =
      memory_.allocate(most_threads * sizeof(listed_thread), alignof(listed_thread));
  auto* const all = static_cast<listed_thread*>(place);
  g.count.store(0);
  g.threads.store(all);
  g.round.fetch_add(1);
  const char* why_not = wait_for_signals(waiting);
  const nanos until =
      monotonic_now() + stop_patience + static_cast<nanos>(thread_count()) * for_each_more;
  const int self = ::gettid();
  for (bool again = true; again && why_not == nullptr;) {
    again = false;
    std::size_t found = 0;  // that do nothing more
    const bool is_listed = for_each_thread([&](int id) {
      if (why_not != nullptr) return;
      listed_thread* const listed = find_listed(id);
      const bool is_at_rest = id == self || id == waiting ||
                              (listed != nullptr && listed->is_stopped.load()) || is_ended_main(id);
      const bool is_blocked = !is_at_rest && signal_ != 0 && blocks(id, signal_);
      if (is_at_rest || (is_blocked && is_kernels(id))) {
        ++found;
        return;
      }
      again = true;  // HT4
      if (has_gone(id)) return;
      const std::size_t n = g.count.load();
      if (n == most_threads) {
        why_not = "the process has too many threads";
      } else if (signal_ == 0) {
        why_not =
            "there are other threads, and vigil::inspect::install() was not called, or the program "
            "has replaced the handler of its signal";
      } else {
        // One that blocks the signal for a moment stops right after. One that is listed
        // has the number of a thread that has gone.
        if (listed == nullptr) {
          ::new (&all[n]) listed_thread;
          all[n].id.store(id);
          g.count.store(n + 1);
        }
        if (!send_stop(id, signal_) && !has_gone(id)) why_not = "a thread cannot be sent a signal";
      }
    });
    if (!is_listed) why_not = "the system does not list the threads";
    again = again || found != thread_count();
    if (again && why_not == nullptr && monotonic_now() >= until) why_not = not_in_time;
    for (std::size_t i = 0; i < g.count.load() && why_not == nullptr; ++i) {
      for (;;) {
        const std::uint32_t seen = g.stopped.load();
        if (all[i].is_stopped.load() || has_gone(all[i].id.load())) break;
        if (monotonic_now() >= until) {
          why_not = blocks(all[i].id.load(), signal_) ? blocks_signal : not_in_time;
          break;
        }
        futex_wait(g.stopped, seen, std::min(until, monotonic_now() + 10'000'000));
        // One that was pending already may have swallowed ours.
        if (!all[i].is_stopped.load()) send_stop(all[i].id.load(), signal_);
      }
    }
  }
  return why_not;
}

std::uintptr_t stopped_threads::used_from(std::uintptr_t bottom,
                                          std::uintptr_t top) const noexcept {
  constexpr std::uintptr_t red_zone = 128;  // below the stack pointer, and in use
  constexpr std::uintptr_t of_handler = 512;
  const auto is_in = [&](std::uintptr_t at) { return at >= bottom && at < top; };
  const listed_thread* const all = the_gate.threads.load();
  const std::size_t count = the_gate.count.load();
  for (std::size_t i = 0; i < count; ++i) {
    const listed_thread& t = all[i];
    if (!t.is_stopped.load() || !is_in(t.stack_pointer)) continue;
    // The handler may run on the same stack.
    const std::uintptr_t at =
        is_in(t.handler) ? t.handler - of_handler : t.stack_pointer - red_zone;
    return is_in(at) ? at : bottom;
  }
  return bottom;
}

stopped_threads::~stopped_threads() {
  gate& g = the_gate;
  g.round.fetch_add(1);
  while (g.inside.load() != 0) {
    futex_wake_one(g.round);
    std::this_thread::yield();
  }
  end_asking();
}

}  // namespace VIGIL_DETAIL
