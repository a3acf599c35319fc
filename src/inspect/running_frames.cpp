// The asker and the handler on the asked thread share one question.
//
// RF1 The question's words belong to the asker while its state is `none`, and to the
//     handler while it is `answered_now`. The handler that changes `asked` to
//     `answered_now` is the only one to answer; the asker that changes `asked` to `none`
//     has taken the question back, and a signal that comes later finds none. The state
//     counts the questions, so a handler cannot take a later one for its own.
// RF2 One asker at a time: asking_lock.
#include "inspect/running_frames.hpp"

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/foreign_memory.hpp"
#include "core/base/futex.hpp"
#include "core/machine/sanitizer.hpp"
#include "core/machine/without_signals.hpp"
#include "core/sched/report/dump_extension.hpp"
#include "core/sched/run/side_call.hpp"
#include "inspect/blocked_call.hpp"
#include "inspect/stopped_threads.hpp"

#include <vigil/detail/callable.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include <sys/syscall.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// The lower bits of the state; the upper ones count.
enum question_state : std::uint32_t { none, asked, answered_now, answered };

constexpr std::uint32_t state_bits = 3;
constexpr std::uint32_t one_question = 4;

struct question {
  futex_word state{none};
  atomic<int> thread{0};
  const stack* where = nullptr;    // nullptr: the thread's own
  const call_ref* look = nullptr;  // notes what the fiber does in this moment
  std::byte* room = nullptr;       // a frames_room's copy
  // The answer.
  frame innermost;
  stack_copy copy;  // empty: the thread runs on another stack
};

constinit question the_question;
std::mutex asking_lock;  // RF2; guards also what follows, except in the handler
int asks_by = 0;
// Written before our handler is installed; the first of them once.
struct sigaction earlier[NSIG];
struct sigaction first_earlier[NSIG];
constinit bool has_first[NSIG] = {};

// The frame from which the thread passes a signal on. Its storage must be there from the
// start, even in a library that is loaded at run time.
[[gnu::tls_model("initial-exec")]] thread_local std::uintptr_t passes_on_from = 0;

// Nobody says where a thread's own stack ends: copies until memory does, or the room.
stack_copy copy_own_stack(std::uintptr_t sp, std::byte* room) noexcept {
  constexpr std::uintptr_t page = 4096;
  std::size_t size = 0;
  while (size < stack_copied_at_most) {
    const std::size_t piece =
        std::min<std::size_t>(page - (sp + size) % page, stack_copied_at_most - size);
    if (!read_memory(reinterpret_cast<const void*>(sp + size), room + size, piece)) break;
    size += piece;
  }
  if (size == 0) return {};
  return {sp, sp + size, room};
}

// Empty if the stack pointer is not on the stack `where`; nullptr: the thread's own.
stack_copy copy_stack(const stack* where, std::uintptr_t sp, std::byte* room) noexcept {
  if (where == nullptr) return copy_own_stack(sp, room);
  const auto bottom = reinterpret_cast<std::uintptr_t>(where->bottom);
  const auto top = reinterpret_cast<std::uintptr_t>(control_block(*where));
  if (sp < bottom || sp >= top) return {};
  const std::size_t size = std::min<std::size_t>(top - sp, stack_copied_at_most);
  copy_racing(reinterpret_cast<const std::byte*>(sp), room, size);
  return {sp, sp + size, room};
}

// Takes little stack: the alternate one may be the program's, and small.
void answer(question& q, const void* machine_state) noexcept {
  q.innermost = interrupted_frame(machine_state);
  q.copy = copy_stack(q.where, q.innermost.registers[stack_pointer_register], q.room);
  (*q.look)();
}

std::uintptr_t stack_pointer_of(const void* machine_state) noexcept {
  return interrupted_frame(machine_state).registers[stack_pointer_register];
}

void do_as(const struct sigaction& before,
           int signal,
           siginfo_t* info,
           void* machine_state) noexcept {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, machine_state);
  } else if (before.sa_handler == SIG_DFL) {
    if (signal == SIGURG || signal == SIGWINCH) return;  // ignored
    // It may be one of ours that comes late, which must not end the process.
    if (has_lost_info(*info)) return;
    struct sigaction standard = {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(signal, &standard, nullptr);
    ::raise(signal);
  } else if (before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  }
}

// Does what would have been done without this handler. A handler that was put in its
// place and calls it in turn, before a later install(), gets what was there at first.
void pass_on(int signal, siginfo_t* info, void* machine_state) noexcept {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  // Not so for one that comes after a handler has jumped out of the alternate stack: that
  // begins at its top again.
  if (here < passes_on_from) {
    do_as(first_earlier[signal], signal, info, machine_state);
    return;
  }
  passes_on_from = here;
  sigset_t meanwhile = earlier[signal].sa_mask;
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &meanwhile, &before);
  do_as(earlier[signal], signal, info, machine_state);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  passes_on_from = 0;
}

bool came_from_here(const siginfo_t& info) noexcept {
  return info.si_code == SI_QUEUE && info.si_value.sival_ptr == &the_question;
}

// Async-signal-safe.
void on_signal(int signal, siginfo_t* info, void* machine_state) {
  const int error = errno;
  question& q = the_question;
  std::uint32_t seen = q.state.load();
  const std::uint32_t number = seen & ~state_bits;
  bool is_ours = false;
  if ((seen & state_bits) == asked && q.thread.load() == ::gettid() &&
      q.state.compare_exchange_strong(seen, number | answered_now)) {
    answer(q, machine_state);
    q.state.store(number | answered);
    futex_wake_one(q.state);
    // Another's signal has answered, if ours was merged with it.
    is_ours = has_lost_info(*info);
  }
  if (!is_ours && !came_from_here(*info) && !stay_stopped(*info, stack_pointer_of(machine_state))) {
    pass_on(signal, info, machine_state);
  }
  errno = error;
}

constexpr nanos patience = 100'000'000;

bool is_our_handler(int signal) noexcept {
  struct sigaction present;
  return ::sigaction(signal, nullptr, &present) == 0 && (present.sa_flags & SA_SIGINFO) != 0 &&
         present.sa_sigaction == &on_signal;
}

// The signal carries the question's address, so that one that comes late is known.
bool send(question& q) noexcept {
  siginfo_t info = {};
  info.si_signo = asks_by;
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_ptr = &q;
  return ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), q.thread.load(), asks_by, &info) == 0;
}

// Caller: holds asking_lock.
bool ask(question& q) noexcept {
  const std::uint32_t number = (q.state.load() & ~state_bits) + one_question;
  q.state.store(number | asked);
  bool is_sent = send(q);
  const nanos until = monotonic_now() + patience;
  for (;;) {
    std::uint32_t seen = q.state.load();
    if (seen == (number | answered)) break;
    if (seen == (number | asked) && (!is_sent || monotonic_now() >= until)) {
      // Takes the question back, unless the handler has just found it: by a late signal
      // of an earlier question, if this one could not be sent.
      if (q.state.compare_exchange_strong(seen, number)) return false;
      is_sent = true;
      continue;
    }
    futex_wait(q.state, seen, seen == (number | asked) ? until : never);
  }
  q.state.store(number);
  return true;
}

// ThreadSanitizer delivers a signal later than it came, with the registers of then.
constexpr bool can_ask = VIGIL_TSAN == 0;

}  // namespace

void ask_running_by(int signal) {
  const auto refuse = [signal](const char* why) {
    throw std::invalid_argument("vigil::inspect::install: the signal " + std::to_string(signal) +
                                why +
                                "; use SIGURG, SIGWINCH, SIGUSR1, SIGUSR2 or a real-time signal");
  };
  if (signal < 0 || signal >= NSIG) refuse(" does not exist");
  const bool is_free = signal == SIGURG || signal == SIGWINCH || signal == SIGUSR1 ||
                       signal == SIGUSR2 || signal >= SIGRTMIN;
  if (signal != 0 && !is_free) refuse(" has a meaning of its own");
  const std::lock_guard guard(asking_lock);
  if (signal == 0 || !can_ask) {
    asks_by = 0;
    process_leave_open(0);
    return;
  }
  if (!is_our_handler(signal)) {
    if (::sigaction(signal, nullptr, &earlier[signal]) != 0) refuse(" cannot be handled");
    if (!std::exchange(has_first[signal], true)) first_earlier[signal] = earlier[signal];
    struct sigaction mine = {};
    mine.sa_sigaction = &on_signal;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&mine.sa_mask);
    if (::sigaction(signal, &mine, nullptr) != 0) refuse(" cannot be handled");
  }
  asks_by = signal;
  process_leave_open(signal);
}

int begin_asking() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  asking_lock.lock();
  return asks_by != 0 && is_our_handler(asks_by) ? asks_by : 0;
}

void end_asking() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  asking_lock.unlock();
}

namespace {

// Whether a thread with this stack pointer is on no stack of vigil's, a worker's
// included: between two fibers it is on that one. `way_back` is of a fiber that runs.
bool is_foreign(std::uintptr_t sp, resume_point way_back) noexcept {
  constexpr std::uintptr_t near = std::uintptr_t{64} << 10;
  const auto workers = reinterpret_cast<std::uintptr_t>(way_back);
  stack_place place;
  // The fiber has not begun to run, or runs no more.
  if (find_stack(way_back, place)) return false;
  if (find_stack(reinterpret_cast<const void*>(sp), place)) return false;
  return sp - (workers - near) >= 2 * near;
}

// The frames from `innermost` on; or why there are none, as the stack is another one.
void list_frames(const stack* where,
                 resume_point way_back,
                 const frame& innermost,
                 const stack_copy& copy,
                 frames_room& room,
                 frame_list& out) noexcept {
  if (copy.bytes != nullptr) return read_frames(innermost, copy, room.known, out);
  const std::uintptr_t sp = innermost.registers[stack_pointer_register];
  const bool is_elsewhere = where != nullptr && is_foreign(sp, way_back);
  out.result = is_elsewhere ? frames_result::other_stack : frames_result::moved_on;
}

void read_frames_on(const stack* where,
                    resume_point way_back,
                    int thread,
                    const call_ref& look,
                    frames_room& room,
                    frame_list& out) noexcept {
  out.count = 0;
  out.result = frames_result::moved_on;
  if (thread == 0) return;
  const blocked_call call(thread);
  if (call.stands()) {
    const frame& caller = call.caller();
    const stack_copy copy = copy_stack(where, caller.registers[stack_pointer_register], room.copy);
    look();
    if (call.has_stood()) return list_frames(where, way_back, caller, copy, room, out);
  }
  const std::lock_guard guard(asking_lock);
  if (asks_by == 0 || !is_our_handler(asks_by)) {
    out.result = frames_result::not_asked;
    return;
  }
  if (!call.is_told()) room.may_have_ended_calls = true;
  question& q = the_question;
  q.thread.store(thread);
  q.where = where;
  q.look = &look;
  q.room = room.copy;
  if (ask(q)) {
    list_frames(where, way_back, q.innermost, q.copy, room, out);
  } else {
    out.result = frames_result::no_answer;
  }
}

VIGIL_NO_SANITIZE_UNDEFINED const void* thread_of_call(const fiber_view& s) noexcept {
  return &static_cast<const side_call*>(s.object.get())->thread;
}

}  // namespace

void read_running_frames(const stack& where,
                         fiber_view& s,
                         frames_room& room,
                         frame_list& out) noexcept {
  // Called once before a handler does, so that the loader need not find it there.
  fiber_moment read = moment_of(where);
  const auto look = [&] { read = moment_of(where); };
  read_frames_on(&where, s.resumes_at, s.thread, look, room, out);
  if (out.count == 0) return;
  if (read.id != s.id) {
    out.count = 0;
    out.result = frames_result::moved_on;
    return;
  }
  if (read.runs != s.runs || read.file != s.file || read.line != s.line) s.ran.reset();
  s.runs = read.runs;
  s.file = read.file;
  s.line = read.line;
}

bool read_long_run(const long_run& r, frames_room& room, frame_list& out) noexcept {
  bool goes_on = r.goes_on();  // as above
  const auto look = [&] { goes_on = r.goes_on(); };
  read_frames_on(&r.where, r.who.resumes_at, r.who.thread, look, room, out);
  return out.count != 0 ? goes_on : r.goes_on();
}

bool read_called_frames(const stack& where,
                        const fiber_view& s,
                        int thread,
                        frames_room& room,
                        frame_list& out) noexcept {
  bool is_one_moment = true;
  const auto look = [&] {
    int runs_on = 0;
    is_one_moment = read_memory(thread_of_call(s), &runs_on, sizeof runs_on) && runs_on == thread &&
                    is_unmoved(where, s);
  };
  read_frames_on(nullptr, nullptr, thread, look, room, out);
  return out.count == 0 || is_one_moment;
}

}  // namespace VIGIL_DETAIL
