// timer_heap: a binary min-heap of timer entries in one array.
//
// It knows no lock, no clock and no fiber, and never follows `timer`: keys
// stand in the array, so a sift touches no record. The array grows inside
// address space reserved at construction, so it never moves and push() never
// allocates. Invariants: timer_heap.cpp.
//
// caller    one thread at a time; the owner's lock or turn guards all of it.
// cost      24 bytes an entry; push, pop, replace_top and remove are
//           O(log n), and none of them can fail.
#pragma once

#include "core/base/assert.hpp"
#include "core/base/nanos.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class runtime_timer;

// The order is (key, tie). Ties count modulo 2^32: equal keys have an order while their
// ties are less than 2^31 apart. The heap carries slack_us for its owner.
struct heap_entry {
  nanos key;
  std::uint32_t tie;
  std::uint32_t slack_us;
  runtime_timer* timer;

  // The key less the slack.
  [[nodiscard]] nanos when() const noexcept { return key - static_cast<nanos>(slack_us) * 1000; }
};

static_assert(sizeof(heap_entry) == 24, "the cost of a pending timer is part of the design");

class timer_heap {
 public:
  // Reserves address space, not memory: 16 GiB, halved until the kernel grants it, down
  // to 1 MiB. Throws std::bad_alloc below that.
  timer_heap();

  ~timer_heap();

  timer_heap(const timer_heap&) = delete;

  timer_heap& operator=(const timer_heap&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  // How many entries fit without another reserve(). Never falls, not even in shrink(): a
  // slot that reserve() has promised stays promised.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  // Makes capacity() >= entries. False if the kernel refuses or the reserved
  // address space ends; then nothing has changed. Entries never move.
  [[nodiscard]] bool reserve(std::size_t entries) noexcept;

  // The earliest entry; valid until the next call that changes the heap. Caller: the heap
  // is not empty.
  [[nodiscard]] const heap_entry& top() const noexcept {
    VIGIL_ASSERT(size_ > 0, "timer_heap: top() of an empty heap; ask empty() first");
    return entries_[0];
  }

  // The second smallest key, which is the smaller one of the root's children;
  // `never` with fewer than two entries.
  [[nodiscard]] nanos second_key() const noexcept {
    if (size_ < 2) return never;
    return size_ == 2 ? entries_[1].key : std::min(entries_[1].key, entries_[2].key);
  }

  // Caller: size() < capacity().
  void push(heap_entry entry) noexcept;

  // Takes the top. Caller: the heap is not empty.
  heap_entry pop() noexcept;

  // Pops up to `most` entries while the top's when() is at most `limit`; returns how
  // many. Does what pop() in a loop would, but faster in a large heap.
  std::size_t pop_until(nanos limit, heap_entry* out, std::size_t most) noexcept;

  // Takes the entry out of a slot. Caller: index < size(). Other entries move to fill the
  // hole, to slots before `index` as well as after it.
  heap_entry remove(std::size_t index) noexcept;

  // The entry in a slot, in heap order. Caller: index < size().
  [[nodiscard]] const heap_entry& operator[](std::size_t index) const noexcept {
    VIGIL_ASSERT(index < size_, "timer_heap: slot past the end");
    return entries_[index];
  }

  // Does one bounded step of giving memory back, unless a quarter or more of the memory
  // in use holds entries. pop() and remove() call it, so an owner need not. It frees
  // pages (MADV_DONTNEED) and keeps them committed: slots promised by reserve() but not
  // pushed into yet lose nothing.
  void shrink() noexcept {
    if (touched_ > floor_entries && touched_ / 4 > size_) give_back();
  }

  // Whether TH1 and TH2 hold, for every slot. O(n), for tests and debug builds.
  [[nodiscard]] bool verify() const noexcept;

 private:
  friend struct debug_layout;

  // Memory is committed and given back in units that are whole pages on every
  // machine; the last unit is never given back.
  static constexpr std::size_t grain = std::size_t{64} << 10;
  static constexpr std::size_t floor_entries = grain / sizeof(heap_entry);

  // A heap below this is in the core's cache: nothing is gained by overlapping.
  static constexpr std::size_t large = 4096;
  static constexpr std::size_t most_descents = 16;  // two levels each: any heap

  void give_back() noexcept;

  heap_entry* entries_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;   // whole entries in committed_
  std::size_t touched_ = 0;    // TH3; the most entries since the last give_back()
  std::size_t committed_ = 0;  // bytes, a multiple of grain
  std::size_t reserved_ = 0;   // bytes, written once by the constructor
};

}  // namespace VIGIL_DETAIL
