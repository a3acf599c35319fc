#include "sched/process/process_signals.hpp"

#include "base/words.hpp"
#include "sched/worker/running_runtimes.hpp"
#include "sched/worker/scheduler.hpp"

#include <vigil/error.hpp>

#include <cstdint>
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

void release_signal(int signal) noexcept {
  if (--caught[signal].users == 0) put_back(signal, &on_signal, caught[signal].earlier);
}

void forget_signals(runtime_slot& slot, std::uint64_t signals) noexcept {
  slot.wants.fetch_and(~signals);
  for (int signal = 1; signal < 64; ++signal) {
    if ((signals >> signal & 1) != 0) release_signal(signal);
  }
}

}  // namespace

bool is_handler(const struct sigaction& installed, void (*handler)(int)) noexcept {
  return (installed.sa_flags & SA_SIGINFO) == 0 && installed.sa_handler == handler;
}

void put_back(int signal, void (*ours)(int), const struct sigaction& earlier) noexcept {
  struct sigaction present {};

  if (::sigaction(signal, nullptr, &present) != 0) return;
  if (is_handler(present, ours)) ::sigaction(signal, &earlier, nullptr);
}

void add_signals(runtime_slot& slot, std::uint64_t signals) {
  std::uint64_t added = 0;
  for (int signal = 1; signal < 64; ++signal) {
    const std::uint64_t bit = std::uint64_t{1} << signal;
    if ((signals & bit) == 0) continue;
    // Noted first, for a signal that comes as soon as it is caught.
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

}  // namespace VIGIL_DETAIL
