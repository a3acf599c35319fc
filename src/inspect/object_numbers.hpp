// object_numbers: tells objects apart that were made in one line, in a loop, say. Those
// that one report mentions get numbers, in the order of their addresses.
#pragma once

#include "inspect/awaited_object.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace VIGIL_DETAIL {

class object_numbers {
 public:
  // Notes the objects of this wait. Throws std::bad_alloc.
  void add(const awaited_object& o);
  // Caller: has added all.
  void finish() noexcept;
  // Numbers them. An object that has its line for itself gets no number.
  void apply(awaited_object& o) const noexcept;

 private:
  // A hash of the place and kind, and the address, disguised: what is left of it in freed
  // memory would pass for a pointer (stuck_search.hpp).
  using entry = std::pair<std::uint64_t, std::uint64_t>;

  static entry entry_of(const shown_birth& b, wait_reason thing) noexcept;

  std::vector<entry> all_;
};

}  // namespace VIGIL_DETAIL
