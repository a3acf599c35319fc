// stack_use_table: how much of their stacks fibers have used, by the place where they
// were started.
//
// The places have a bound, and so has what measuring costs: the first fibers that are
// drawn in a place are measured, and later ones ten times a second.
//
// A place is added under a lock. Its words are sequentially consistent; `file` publishes
// the rest of it, and never changes afterwards.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"

#include <vigil/inspect.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace VIGIL_DETAIL {

class stack_use_table {
 public:
  static constexpr std::size_t most_places = 256;
  static constexpr std::uint32_t first_ones = 64;
  static constexpr nanos spacing = 100'000'000;

  constexpr stack_use_table() noexcept = default;

  // Any thread.

  // Whether the next fiber of a place is to be measured, which is then counted as begun.
  bool begin(const char* file, unsigned line, nanos now) noexcept;
  // It has ended, and has used so many bytes of its stack.
  void end(const char* file, unsigned line, std::size_t bytes, std::size_t stack) noexcept;

  // A copy, to which fibers that are alive are added.
  class reading;

 private:
  struct place {
    atomic<const char*> file{nullptr};  // a copy; nullptr: none is here
    unsigned line = 0;
    atomic<std::uint32_t> begun{0};
    atomic<nanos> next{0};  // when another one is due, after the first ones
    std::array<atomic<std::uint64_t>, inspect::stack_use::buckets> count{};
    atomic<std::uint64_t> sum{0};
    atomic<std::size_t> most{0};
    atomic<std::size_t> least_stack{0};
  };

  // Twice as many as places, so that a search is short. The last is for the others.
  static constexpr std::size_t slots = 2 * most_places;

  std::size_t find(const char* file, unsigned line) const noexcept;
  std::size_t find_or_add(const char* file, unsigned line) noexcept;

  std::mutex adding_;
  std::size_t known_ = 0;  // guarded by adding_
  std::array<place, slots + 1> places_;
};

class stack_use_table::reading {
 public:
  // Throws std::bad_alloc.
  explicit reading(const stack_use_table& of);

  // A fiber of this place is alive, and has used so many bytes of its stack by now.
  void add_alive(const char* file, unsigned line, std::size_t bytes, std::size_t stack) noexcept;

  // The places with the largest use first.
  std::vector<inspect::stack_use> take() &&;

 private:
  const stack_use_table& table_;
  std::vector<inspect::stack_use> all_;  // as the table's slots
};

}  // namespace VIGIL_DETAIL
