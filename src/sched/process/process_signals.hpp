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

// Catches these signals (a bit for each) for the runtime in the slot, besides those that
// it catches already. Throws std::invalid_argument for one that cannot be caught; then
// none is added. Caller: holds process_lock.
void add_signals(runtime_slot& slot, std::uint64_t signals);

// The runtime in the slot wants no signal any more. Caller: holds process_lock.
void drop_signals(runtime_slot& slot) noexcept;

// Adds the watcher, and catches its signals from now on until the end of the run. Throws
// std::invalid_argument, wrong_place.
void process_watch_signals(scheduler& s, signal_watcher& w);

// Whether `handler` is the one that is installed.
bool is_handler(const struct sigaction& installed, void (*handler)(int)) noexcept;

// Installs the earlier handler if ours is still there; one that the program has
// installed since then stays.
void put_back(int signal, void (*ours)(int), const struct sigaction& earlier) noexcept;

}  // namespace VIGIL_DETAIL
