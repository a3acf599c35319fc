// Shared by the programs of the walks: the two marks between which walk.py follows the
// calls, and a runtime with one worker and no other thread.
#pragma once

#include <vigil/fiber.hpp>
#include <vigil/options.hpp>
#include <vigil/runtime.hpp>

// walk.py stops the program at these.
extern "C" [[gnu::noinline]] inline void walk_begins() {
  asm volatile("");
}

extern "C" [[gnu::noinline]] inline void walk_ends() {
  asm volatile("");
}

// Rounds before the one that is followed make what is made once: stacks, records, timers.
inline constexpr int rounds = 3;

template <class F>
void on_one_worker(F f) {
  vigil::run({.workers = 1, .stuck_limit = std::chrono::nanoseconds(0)}, f);
}
