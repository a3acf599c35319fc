// The signals that runs catch: those of options::stop_on, and those that a
// signal_watcher waits for. A signal has one handler for all runtimes, from the first
// run that wants it until the last one ends; then the earlier handler is put back.
#pragma once

#include <vigil/detail/config.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class scheduler;
struct runtime_slot;
struct signal_watcher;

struct caught_signal {
  std::size_t users = 0;  // slots that want it
  struct sigaction earlier;
};

extern caught_signal caught[64];  // guarded by process_lock

// Returns the signal's bit. Throws std::invalid_argument, with a text that begins with
// `call`, if it cannot be caught.
std::uint64_t checked_signal(const char* call, int signal);

// Catches these signals (checked, a bit for each) for the runtime in the slot, besides
// those that it catches already. Caller: holds process_lock.
void add_signals(runtime_slot& slot, std::uint64_t signals) noexcept;

// The runtime in the slot wants no signal any more. Caller: holds process_lock.
void drop_signals(runtime_slot& slot) noexcept;

// Adds the watcher, and catches its checked signals from now on until the end of the run.
// Caller: a fiber of that run.
void process_watch_signals(scheduler& s, signal_watcher& w) noexcept;

// Whether `handler` is the one that is installed.
bool is_handler(const struct sigaction& installed, void (*handler)(int)) noexcept;

// Installs the earlier handler if ours is still there; one that the program has
// installed since then stays.
void put_back(int signal, void (*ours)(int), const struct sigaction& earlier) noexcept;

}  // namespace VIGIL_DETAIL
