// fiber_table: how many fibers were started in each place and are in each state. It
// counts all fibers there are, or tasks, in a room of fixed size: so a leak shows however
// many others there are, and in a signal's handler.
#pragma once

#include "core/sched/report/fiber_view.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace VIGIL_DETAIL {

class dump_extension;
class dump_writer;

// Fibers of one runtime with equal birth, state and reason.
struct fiber_row {
  fiber_view oldest;  // has waited for longest; or the first, if none waits
  stack where{};      // of that one, under the slab_hold alone; of a task: none
  std::uint64_t count = 0;
  std::uint64_t with_age = 0;  // wait, and it is known since when
  double sum = 0;              // of their ages
  nanos newest = 0;
  nanos longest = -1;              // the age of `oldest`; -1: not known
  bool has_other_objects = false;  // not all wait for the same one
  std::uint32_t lines = 0;         // written below the table so far
};

class fiber_table {
 public:
  static constexpr std::size_t most_rows = 500;

  // Counts one. Returns its row; nullptr if there is no room for another row.
  VIGIL_FOR_IO fiber_row* add(const fiber_view& v, const stack& where) noexcept;
  // Counts all fibers. Caller: as of take_view().
  VIGIL_FOR_IO void add_all() noexcept;
  VIGIL_FOR_IO fiber_row* find(const fiber_view& v) noexcept;

  // For a second walk: a fiber that has gone on since the first may have no row yet.
  fiber_row* find_or_add(const fiber_view& v, const stack& where) noexcept {
    fiber_row* const row = find(v);
    return row != nullptr ? row : add(v, where);
  }

  VIGIL_FOR_IO void clear() noexcept;

  // The rows, the largest first; of equal ones that with the earlier fiber. Until the
  // next add().
  VIGIL_FOR_IO const fiber_row* const* by_count() noexcept;

  std::size_t rows() const noexcept { return rows_; }

  std::uint64_t all() const noexcept { return all_; }

  // How many of each row are shown if `most` may be shown of all.
  std::size_t share_of(std::size_t most) const noexcept {
    return all_ <= most ? most : most / rows_;
  }

 private:
  static constexpr std::size_t slots = 1024;  // more than rows, so that a search ends

  fiber_row& row(std::size_t i) noexcept {
    return *std::launder(reinterpret_cast<fiber_row*>(room_ + i * sizeof(fiber_row)));
  }

  std::size_t slot_of(const fiber_view& v) noexcept;

  std::uint64_t all_ = 0;
  std::size_t rows_ = 0;
  std::uint16_t row_in_[slots] = {};  // its index and 1; 0: none
  const fiber_row* order_[most_rows] = {};
  alignas(fiber_row) std::byte room_[most_rows * sizeof(fiber_row)];  // made as they come
};

// Writes the largest rows, one line each, and what the others sum up to; nothing if no
// row has more than lines_at_most. Async-signal-safe if the writer is. Caller: as of
// take_view().
VIGIL_FOR_IO void write_table(dump_writer& out,
                              fiber_table& table,
                              const dump_extension* extension) noexcept;

}  // namespace VIGIL_DETAIL
