// A look inside: the dump.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdio>

namespace vigil::inline VIGIL_ABI::debug {

// Writes every fiber of the process to `out`: number, name, state, what it
// waits for and how long already, its deadline, where it was started; then
// each runtime's workers and timers. Any thread, at any time; nothing is
// stopped meanwhile, so a line is a snapshot of one fiber. The same text comes
// from SIGQUIT and before an abort.
VIGIL_API void dump(std::FILE* out);

// Writes what holds each running runtime, by kind: its fibers besides the main
// one, referenced timers that are pending (posted functions among them), and
// outside work, functions in blocking() by their callers. With
// exit_when::all_done these are what run() waits for. At most 64 of each kind
// are named, all are counted. Any thread but a signal handler; walks the heap of
// timers, whatever its size.
VIGIL_API void holders(std::FILE* out);

}  // namespace vigil::inline VIGIL_ABI::debug
