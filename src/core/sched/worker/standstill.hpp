// standstill: says that virtual time does not move, since some fiber can always run.
//
// Counts what all fibers of a run do at one instant of its clock: their calls and their
// turns. A program that does so much of it hangs, most likely: a loop that polls, or two
// fibers that keep each other busy. Once in a run the busiest fibers are named.
//
// The worker's thread does all of it.
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/fiber/fiber.hpp"

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class standstill {
 public:
  explicit standstill(std::uint64_t seed) noexcept : seed_(seed) {}

  void begin_run() noexcept;

  // The clock has moved.
  void begin_instant() noexcept;

  // The fiber, which runs, has done n things more.
  void add(const fiber& f, std::uint64_t n) noexcept;

 private:
  // One of those that do the most. A copy: the fiber may have ended when it is named.
  struct busy_one {
    fiber_identity who;
    std::uint64_t count = 0;  // too small by less than noted_ / places
  };

  static constexpr std::uint64_t most = 10'000'000;
  static constexpr nanos most_time = 10'000'000'000;  // of the processor
  static constexpr nanos short_time = 100'000'000;    // nothing is noted before
  static constexpr std::size_t places = 16;
  static constexpr std::size_t named = 3;

  bool takes_long() noexcept;
  void note(const fiber& f, std::uint64_t n) noexcept;
  void say(bool by_time) noexcept;

  const std::uint64_t seed_;
  std::uint64_t all_ = 0;      // at this instant
  nanos began_ = 0;            // by the coarse clock; 0: no look yet
  nanos began_processor_ = 0;  // the thread's time, once the instant is no short one
  bool was_said_ = false;
  std::uint64_t noted_ = 0;
  busy_one busiest_[places];
};

}  // namespace VIGIL_DETAIL
