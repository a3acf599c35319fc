#include "core/sched/process/process_signals.hpp"

#include "core/base/words.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <mutex>
#include <stdexcept>
#include <string>

namespace VIGIL_DETAIL {

caught_signal caught[64];

namespace {

// Async-signal-safe.
void on_signal(int signal) {
  const handler_scope scope;
  for_each_running([signal](scheduler& s, const runtime_slot& slot) {
    if ((slot.wants.load() >> signal & 1) != 0) s.signals.arrived(signal);
  });
}

// Installs our handler even if another runtime uses the signal already: the program may
// have put a handler of its own in place of ours since then.
void install_signal(int signal) noexcept {
  struct sigaction action {};

  struct sigaction present {};

  action.sa_handler = &on_signal;
  words::signals_may_come();
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  ::sigaction(signal, &action, &present);
  if (!is_handler(present, &on_signal)) caught[signal].earlier = present;
}

}  // namespace

std::uint64_t checked_signal(const char* call, int signal) {
  struct sigaction present {};

  const bool is_fault =
      signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
  if (!is_fault && signal >= 1 && signal <= 63 && signal != SIGKILL && signal != SIGSTOP &&
      ::sigaction(signal, nullptr, &present) == 0) {
    return std::uint64_t{1} << signal;
  }
  throw std::invalid_argument(
      std::string(call) + ": " + std::to_string(signal) +
      (is_fault
           ? " reports a fault of the program, which would fault again at once"
           : " is no signal from 1 to 63 that can be caught: SIGKILL, SIGSTOP and those of the "
             "C library cannot"));
}

bool is_handler(const struct sigaction& installed, void (*handler)(int)) noexcept {
  return (installed.sa_flags & SA_SIGINFO) == 0 && installed.sa_handler == handler;
}

void put_back(int signal, void (*ours)(int), const struct sigaction& earlier) noexcept {
  struct sigaction present {};

  if (::sigaction(signal, nullptr, &present) != 0) return;
  if (is_handler(present, ours)) ::sigaction(signal, &earlier, nullptr);
}

void add_signals(runtime_slot& slot, std::uint64_t signals) noexcept {
  for (int signal = 1; signal < 64; ++signal) {
    const std::uint64_t bit = std::uint64_t{1} << signal;
    if ((signals & bit) == 0) continue;
    // Noted first, for a signal that comes as soon as it is caught.
    const bool is_new = (slot.wants.fetch_or(bit) & bit) == 0;
    install_signal(signal);
    if (is_new) ++caught[signal].users;
  }
}

void drop_signals(runtime_slot& slot) noexcept {
  const std::uint64_t signals = slot.wants.exchange(0);
  for (int signal = 1; signal < 64; ++signal) {
    if ((signals >> signal & 1) != 0 && --caught[signal].users == 0)
      put_back(signal, &on_signal, caught[signal].earlier);
  }
}

void process_watch_signals(scheduler& s, signal_watcher& w) noexcept {
  const std::lock_guard guard(process_lock);
  s.signals.add(w);  // first, so that it hears of the first signal that is caught
  add_signals(*slot_with(&s), w.signals);
}

}  // namespace VIGIL_DETAIL
