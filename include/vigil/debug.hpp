// The dump, and the list of what holds a runtime.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdio>

namespace VIGIL_PUBLIC::debug {

// Writes every fiber of the process to `out`: number, name, state, what it waits for and
// for how long, its deadline, and where it was started; then the workers and timers of
// each runtime. SIGQUIT and an abort write the same text. Throws nothing; an error of
// writing stays in `out`. Thread safety: any thread, at any time. Nothing is stopped, so
// each line is a snapshot of one fiber. Lifetime: `out` is used during the call.
// Shutdown: works during it. Cost: a walk over all fibers. Go: pprof.Lookup("goroutine"),
// and SIGQUIT.
VIGIL_API void dump(std::FILE* out);

// Writes what holds each running runtime, by kind: its fibers apart from the main one,
// pending referenced timers (including posted functions), and outside work, with
// functions in blocking() listed by caller. With exit_when::all_done these are what run()
// waits for. At most 64 of each kind are named; all are counted. Throws nothing. Thread
// safety: any thread, but not a signal handler. Lifetime: `out` is used during the call.
// Shutdown: works during it. Cost: it walks all fibers and the whole heap of timers.
// Behaviour: process.getActiveResourcesInfo().
VIGIL_API void holders(std::FILE* out);

}  // namespace VIGIL_PUBLIC::debug
