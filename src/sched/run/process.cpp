#include "sched/run/process.hpp"

#include "base/assert.hpp"
#include "base/clock_source.hpp"
#include "base/futex.hpp"
#include "base/words.hpp"
#include "sched/fiber/written_name.hpp"
#include "sched/report/fiber_dump.hpp"
#include "sched/scheduler.hpp"

#include <vigil/error.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// The runtimes that run now, for signal handlers: which read it without a
// lock. A slot is emptied before its scheduler goes; handlers_inside keeps it
// until they have left. Blocks of slots are added, and never go.
struct runtime_slot {
  atomic<scheduler*> running{nullptr};
  atomic<std::uint64_t> wants{0};  // signals, a bit for each
};

struct slot_block {
  runtime_slot slots[64];
  atomic<slot_block*> next{nullptr};
};

slot_block first_slots;
atomic<int> handlers_inside{0};

// Async-signal-safe if f is. Up to the first slot for which f says true; null if
// there is none.
template <class F>
runtime_slot* find_slot(F&& f) noexcept {
  for (slot_block* b = &first_slots; b != nullptr; b = b->next.load()) {
    for (runtime_slot& slot : b->slots) {
      if (f(slot)) return &slot;
    }
  }
  return nullptr;
}

template <class F>
void for_each_running(F&& f) noexcept {
  find_slot([&](runtime_slot& slot) {
    if (scheduler* const s = slot.running.load()) f(*s, slot);
    return false;
  });
}

atomic<int> quiet_threads{0};
atomic<int> own_threads{0};
atomic<int> last_steps{0};  // process_last_step

// Quiet threads that have done all that they do, the latest of them: the system
// lists a thread for a moment after its end, also when it was joined. With a
// time, since numbers of threads come again.
struct leaving_thread {
  pid_t id = 0;
  nanos since = 0;
};

std::mutex leaving_lock;  // guards these two
leaving_thread leaving[64];
std::size_t left_so_far = 0;

struct quiet_thread {
  bool is_registered = true;

  ~quiet_thread() {
    const std::lock_guard guard(leaving_lock);
    leaving[left_so_far++ % std::size(leaving)] = {::gettid(), monotonic_now()};
    quiet_threads.fetch_sub(1);
  }
};

thread_local quiet_thread this_quiet_thread;

// Caller: holds leaving_lock.
bool is_leaving(pid_t id, nanos now) noexcept {
  constexpr nanos at_most = 10'000'000'000;
  for (const leaving_thread& t : leaving) {
    if (t.id == id && now - t.since < at_most) return true;
  }
  return false;
}

std::mutex process_lock;  // guards the rest: taken when a run begins or ends
std::size_t runs = 0;
bool sigquit_is_ours = false;
struct sigaction earlier_sigquit;

struct caught_signal {
  std::size_t users = 0;
  struct sigaction earlier;
};

caught_signal caught[64];

// What the terminate handler goes on with; written under process_lock. A handler
// that the program has put on top of ours stays when the runs end, and may call
// ours, also when the next run has put ours on top again: the second call goes to
// what lay below both.
atomic<std::terminate_handler> below_ours{nullptr};
atomic<std::terminate_handler> below_both{nullptr};
bool below_another = false;  // guarded by process_lock; never taken back

// Of the fork that is under way: guarded by process_lock. A thread that was
// there may begin its last step before the child is made.
bool fork_lacks_threads = false;

// In a forked child that lacks threads which what it has inherited counts on.
atomic<bool> forked{false};
atomic<bool> exiting{false};

// What ends the program has been said on standard error: once is enough.
atomic<bool> end_is_named{false};

// What the lock guards is whole in the child, and so is what a last step touches. With
// threads of ours the child is refused anyway.
//
// A step may have begun while the lock was waited for: so they are looked at under it.
// Nobody waits with the lock, since what a step hands over may need the lock.
void before_fork() noexcept {
  for (;;) {
    process_lock.lock();
    fork_lacks_threads = own_threads.load() != 0;
    if (fork_lacks_threads || last_steps.load() == 0) break;
    process_lock.unlock();
    ::sched_yield();
  }
  leaving_lock.lock();
}

void in_parent() noexcept {
  leaving_lock.unlock();
  process_lock.unlock();
}

void in_child() noexcept {
  leaving_lock.unlock();
  if (fork_lacks_threads || own_threads.load() != 0) {
    forked.store(true);
  } else {
    handlers_inside.store(0);  // the handlers of other threads stayed in the parent
    last_steps.store(0);       // and so did a thread that began its last step meanwhile,
    quiet_threads.store(0);    // or has done it
  }
  process_lock.unlock();
  forget_worker_after_fork();
}

// --- handlers: async-signal-safe from here

class handler_scope {
 public:
  handler_scope() noexcept { handlers_inside.fetch_add(1); }

  ~handler_scope() {
    handlers_inside.fetch_sub(1);
    errno = errno_;
  }

 private:
  int errno_ = errno;
};

void on_signal(int signal) {
  const handler_scope scope;
  for_each_running([signal](scheduler& s, const runtime_slot& slot) {
    if ((slot.wants.load() >> signal & 1) != 0) s.signals.arrived(signal);
  });
}

void on_sigquit(int) {
  const handler_scope scope;
  process_dump(2);
}

// Writes "fiber 12 (name)" for the overflow report.
void describe(const stack& where, char* text, std::size_t size) noexcept {
  describe_fiber(where, text, size);
}

// --- the rest runs on threads

// An exception that nobody has caught ends the program on this fiber.
void name_uncaught(const fiber& f, const std::exception_ptr& error) noexcept {
  const auto id = static_cast<unsigned long long>(f.id);
  const place_in_words from(f);
  try {
    std::rethrow_exception(error);
  } catch (const stopped&) {
    fatal(
        "vigil::stopped has left a noexcept function of fiber %llu (%s, started at %s). A "
        "wait in a noexcept function, destructors included, must be under "
        "this_fiber::shield",
        id,
        written_name(f.name).text(),
        from.text);
  } catch (const std::exception& e) {
    warn(
        "an exception has left fiber %llu (%s, started at %s), or a noexcept function on it, "
        "and nobody catches it: %s",
        id,
        written_name(f.name).text(),
        from.text,
        e.what());
  } catch (...) {
    warn(
        "an exception that is no std::exception has left fiber %llu (%s, started at %s), or a "
        "noexcept function on it, and nobody catches it",
        id,
        written_name(f.name).text(),
        from.text);
  }
}

// On a worker's own stack: there the only code that is not vigil's is Asio's and
// the program's handlers.
void name_uncaught_of_handler(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    warn(
        "an exception has left a handler of the io_context, run by a worker, or a noexcept "
        "function in it, and nobody catches it: %s",
        e.what());
  } catch (...) {
    warn(
        "an exception that is no std::exception has left a handler of the io_context, run by a "
        "worker, or a noexcept function in it, and nobody catches it");
  }
}

[[noreturn]] void on_terminate() {
  const fiber* const f = current_fiber();
  if ((f != nullptr || current_worker() != nullptr) && !end_is_named.exchange(true)) {
    if (const auto error = std::current_exception()) {
      if (f != nullptr) {
        name_uncaught(*f, error);
      } else {
        name_uncaught_of_handler(error);
      }
    }
  }
  thread_local bool again = false;
  const bool called_by_another = std::exchange(again, true);
  const std::terminate_handler earlier = (called_by_another ? below_both : below_ours).load();
  if (earlier != nullptr) earlier();
  std::abort();
}

// For each run: the program may have put a handler on top of ours in another one that
// still goes on.
void install_terminate() noexcept {
  const std::terminate_handler present = std::get_terminate();
  if (present == &on_terminate) return;
  if (runs != 0) below_another = true;
  if (!below_another) below_both.store(present);
  below_ours.store(present);
  std::set_terminate(&on_terminate);
}

void remove_terminate() noexcept {
  if (std::get_terminate() == &on_terminate) {
    std::set_terminate(below_ours.exchange(below_both.load()));
  } else {
    below_another = true;
  }
}

void dump_to_stderr() noexcept {
  process_dump(2);
}

// The one with this in it; null if there is none.
runtime_slot* slot_with(const scheduler* s) noexcept {
  return find_slot([s](const runtime_slot& slot) { return slot.running.load() == s; });
}

// Caller: holds process_lock.
runtime_slot& free_slot() {
  if (runtime_slot* const found = slot_with(nullptr)) return *found;
  auto* const more = new slot_block;
  slot_block* last = &first_slots;
  while (slot_block* const b = last->next.load())
    last = b;
  last->next.store(more);
  return more->slots[0];
}

bool is_handler(const struct sigaction& installed, void (*handler)(int)) noexcept {
  return (installed.sa_flags & SA_SIGINFO) == 0 && installed.sa_handler == handler;
}

// Whoever else uses the signal already: the program may have put a handler of its own
// in place of ours since then.
void install_signal(int signal) {
  struct sigaction action {};

  struct sigaction present {};

  action.sa_handler = &on_signal;
  words::signals_may_come();
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  if (::sigaction(signal, &action, &present) != 0) {
    throw std::invalid_argument("vigil: signal " + std::to_string(signal) +
                                " cannot be caught; options::stop_on and notify_signals take "
                                "signals from 1 to 63 other than SIGKILL and SIGSTOP");
  }
  if (!is_handler(present, &on_signal)) caught[signal].earlier = present;
}

// A handler that the program has installed since then stays.
void put_back(int signal, void (*ours)(int), const struct sigaction& earlier) noexcept {
  struct sigaction present {};

  if (::sigaction(signal, nullptr, &present) != 0) return;
  if (is_handler(present, ours)) ::sigaction(signal, &earlier, nullptr);
}

void release_signal(int signal) noexcept {
  if (--caught[signal].users == 0) put_back(signal, &on_signal, caught[signal].earlier);
}

void forget_signals(runtime_slot& slot, std::uint64_t signals) noexcept {
  slot.wants.fetch_and(~signals);
  for (int signal = 1; signal < 64; ++signal) {
    if ((signals >> signal & 1) != 0) release_signal(signal);
  }
}

void add_signals(runtime_slot& slot, std::uint64_t signals) {
  std::uint64_t added = 0;
  for (int signal = 1; signal < 64; ++signal) {
    const std::uint64_t bit = std::uint64_t{1} << signal;
    if ((signals & bit) == 0) continue;
    // First, for a signal that comes as soon as it is caught.
    const bool is_new = (slot.wants.fetch_or(bit) & bit) == 0;
    try {
      install_signal(signal);
    } catch (...) {
      if (is_new) slot.wants.fetch_and(~bit);
      forget_signals(slot, added);
      throw;
    }
    if (!is_new) continue;
    ++caught[signal].users;
    added |= bit;
  }
}

void drop_signals(runtime_slot& slot) noexcept {
  forget_signals(slot, slot.wants.load());
}

}  // namespace

process_guard::process_guard(scheduler& s) : sched_(s) {
  process_check_fork("vigil::run");
  // Before the lock is taken for the first time.
  static const bool fork_handler = ::pthread_atfork(&before_fork, &in_parent, &in_child) == 0;
  static_cast<void>(fork_handler);
  const std::lock_guard guard(process_lock);

  struct exit_mark {
    ~exit_mark() { process_exits(); }
  };

  // Hears of an exit on a thread that is no worker, before the runtimes do that
  // were there already.
  static const exit_mark mark;
  runtime_slot& slot = free_slot();
  std::uint64_t signals = 0;
  for (const int signal : s.settings().stop_on) {
    if (signal < 1 || signal > 63) {
      throw std::invalid_argument("vigil: options::stop_on: " + std::to_string(signal) +
                                  " is no signal from 1 to 63");
    }
    signals |= std::uint64_t{1} << signal;
  }
  slot.running.store(&s);
  try {
    add_signals(slot, signals);
  } catch (...) {
    drop_signals(slot);
    slot.running.store(nullptr);
    throw;
  }
  install_terminate();
  if (runs++ == 0) {
    set_fatal_hook(&dump_to_stderr);
    install_overflow_report(&describe);
  }
  if (s.settings().dump_on_sigquit && caught[SIGQUIT].users == 0) {
    struct sigaction present {};

    ::sigaction(SIGQUIT, nullptr, &present);
    if (is_handler(present, SIG_DFL)) {
      struct sigaction action {};

      action.sa_handler = &on_sigquit;
      action.sa_flags = SA_RESTART | SA_ONSTACK;
      sigfillset(&action.sa_mask);
      sigquit_is_ours = ::sigaction(SIGQUIT, &action, &earlier_sigquit) == 0;
    }
  }
}

process_guard::~process_guard() {
  const std::lock_guard guard(process_lock);
  runtime_slot& slot = *slot_with(&sched_);
  drop_signals(slot);
  slot.running.store(nullptr);
  if (--runs == 0) {
    if (sigquit_is_ours) put_back(SIGQUIT, &on_sigquit, earlier_sigquit);
    sigquit_is_ours = false;
    remove_overflow_report();
    remove_terminate();
    set_fatal_hook(nullptr);
  }
  // A handler on another thread may still hold the scheduler's address.
  while (handlers_inside.load() != 0)
    ::sched_yield();
}

thread_guard::thread_guard() : earlier_slack_(set_thread_timer_slack(1)) {}

thread_guard::~thread_guard() {
  set_thread_timer_slack(earlier_slack_);
}

void process_check_fork(const char* call) noexcept {
  if (forked.load()) {
    fatal(
        "%s in a forked child: the threads of the library stayed in the parent. After fork() call "
        "exec, or fork while no runtime runs and no thread of a side pool is there (before the "
        "first vigil::run, for example)",
        call);
  }
}

bool process_lacks_threads() noexcept {
  return forked.load();
}

bool process_is_exiting() noexcept {
  return exiting.load() || forked.load();
}

void process_exits() noexcept {
  exiting.store(true);
}

void process_end_is_named() noexcept {
  end_is_named.store(true);
}

namespace {

// Calls f with the number of each thread of the process.
template <class F>
void for_each_thread(F&& f) noexcept {
  DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return;
  while (const dirent* const entry = ::readdir(tasks)) {
    if (entry->d_name[0] != '.') f(static_cast<pid_t>(std::atol(entry->d_name)));
  }
  ::closedir(tasks);
}

}  // namespace

std::size_t process_thread_count() noexcept {
  std::size_t n = 0;
  for_each_thread([&n](pid_t) { ++n; });
  return n;
}

bool process_has_only(std::size_t workers) noexcept {
  const std::lock_guard guard(leaving_lock);
  const nanos now = monotonic_now();
  std::size_t n = 0;
  for_each_thread([&n, now](pid_t id) { n += is_leaving(id, now) ? 0 : 1; });
  return n == workers + process_quiet_threads();
}

void process_dump(int descriptor) noexcept {
  dump_writer out(descriptor);
  process_dump(out);
}

void process_count_quiet_threads(int change) noexcept {
  quiet_threads.fetch_add(change);
}

void process_is_quiet_thread() noexcept {
  static_cast<void>(this_quiet_thread.is_registered);
}

void process_count_own_threads(int change) noexcept {
  own_threads.fetch_add(change);
}

// In this order: a fork that finds no thread counted finds the step.
process_last_step::process_last_step() noexcept {
  process_count_quiet_threads(1);
  process_is_quiet_thread();
  last_steps.fetch_add(1);
  own_threads.fetch_sub(1);
}

process_last_step::~process_last_step() {
  last_steps.fetch_sub(1);
}

std::size_t process_quiet_threads() noexcept {
  return static_cast<std::size_t>(quiet_threads.load());
}

nanos process_now(const scheduler* s) noexcept {
  const bool runs_now = s != nullptr && slot_with(s) != nullptr;
  return runs_now ? s->clock.now() : monotonic_now();
}

void process_dump(dump_writer& out) noexcept {
  handlers_inside.fetch_add(1);
  dump_fibers(out);
  for_each_running([&out](const scheduler& s, runtime_slot&) { dump_runtime(out, s); });
  handlers_inside.fetch_sub(1);
  out.flush();
}

void process_dump_running(int descriptor, const scheduler& s) noexcept {
  dump_writer out(descriptor);
  handlers_inside.fetch_add(1);
  dump_running(out, s);
  handlers_inside.fetch_sub(1);
  out.flush();
}

bool process_has_run_for(const scheduler* s, const fiber& f, run_bounds::span& out) noexcept {
  return s != nullptr && slot_with(s) != nullptr && has_run_for(*s, f, out);
}

void process_list_holders(dump_writer& out) noexcept {
  handlers_inside.fetch_add(1);
  for_each_running([&out](scheduler& s, runtime_slot&) { s.list_holders(out); });
  handlers_inside.fetch_sub(1);
  out.flush();
}

void process_watch_signals(scheduler& s, signal_watcher& w) {
  s.signals.add(w);  // first, so that it hears of the first signal that is caught
  try {
    const std::lock_guard guard(process_lock);
    runtime_slot* const slot = slot_with(&s);
    if (slot == nullptr) throw wrong_place("vigil: signals are watched while the runtime runs");
    add_signals(*slot, w.signals);
  } catch (...) {
    s.signals.remove(w);
    throw;
  }
}

}  // namespace vigil::inline VIGIL_ABI::detail
