// tuning: the numbers by which workers and the overseer decide when to look and when to
// wake. docs/internals/workers.md says what each costs and how it is measured.
#pragma once

#include "core/base/nanos.hpp"

#include <cstdint>

namespace VIGIL_DETAIL::tuning {

// --- the overseer
// The time between two of its looks: at first, and after it has woken a worker; it
// doubles from look to look, up to the longest. Work left to a worker that computes is
// seen at two looks, so it waits for two of the longest at most (P7).
inline constexpr nanos shortest_look = 50'000;
inline constexpr nanos longest_look = 500'000;
// The overseer is called if something was left so many times in a row before, each within
// the longest look of the one before: then its looks cost less than as many wake-ups.
inline constexpr unsigned traffic = 4;

// --- a worker
// How long it keeps work that it has made ready, while the overseer looks, before it
// wakes a worker for it; and how long it sleeps past deadlines that come too fast.
inline constexpr nanos batch = 100'000;
// A sleep that is shorter is over at once. After so many in a row deadlines come too
// fast.
inline constexpr nanos no_sleep = 5'000;
inline constexpr std::uint32_t sleeps_in_vain = 16;
// How often a busy worker reads the clock, and after how many turns at the latest.
inline constexpr nanos clock_interval = 1'000;
inline constexpr std::uint32_t most_turns = 16;
// Each so many turns one is for the watch and the injection queue.
inline constexpr std::uint32_t fairness_turns = 61;

}  // namespace VIGIL_DETAIL::tuning
