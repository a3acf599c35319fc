// slab_table: all slabs, readable without a lock.
//
// The danger. A dump and the fault handler walk stacks from inside a signal
// handler: they may take no lock, and other threads map and unmap meanwhile.
//
// The rule. Records are never freed. A reader first takes a slab_hold, then asks
// the record's state; a thread that unmaps first marks the record, then asks for
// holds.
//
// Invariants
//   ST1 Chunks and records live for ever once they are published.
//   ST2 base, count and size_class of a record change only while its state is
//       vacant, under the pool's lock.
//   ST3 A slab is unmapped only after `unmapping` was stored in its state and
//       no hold was seen after that. Both sides are sequentially consistent:
//       the holder adds its hold and then loads the state, the unmapper stores
//       the mark and then loads the holds. One of them is first in the single
//       total order, so either the holder sees the mark and skips the slab,
//       which is empty, or the unmapper sees the hold and keeps the slab. A
//       holder that saw `mapped` came before the mark, and so did its hold.
//   ST4 in_use[i] is 1 exactly while stack i is in the hands of a fiber. Only
//       the thread that hands the stack out or takes it back writes it.
#pragma once

#include "core/machine/stack.hpp"

#include <vigil/detail/config.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

inline constexpr unsigned slab_places = 64;
inline constexpr unsigned chunk_slabs = 64;
inline constexpr unsigned max_chunks = 4096;
inline constexpr unsigned size_class_count = 17;
static_assert(min_stack_size << (size_class_count - 1) == max_stack_size);

constexpr std::size_t stack_size_of(unsigned size_class) noexcept {
  return min_stack_size << size_class;
}

constexpr std::size_t stride_of(unsigned size_class) noexcept {
  return stack_size_of(size_class) + stack_guard_size;
}

// The smallest class that holds `usable` bytes, which are in range.
constexpr unsigned size_class_of(std::size_t usable) noexcept {
  unsigned size_class = 0;
  while (stack_size_of(size_class) < usable)
    ++size_class;
  return size_class;
}

inline constexpr unsigned default_size_class = size_class_of(default_stack_size);

enum class slab_state : std::uint32_t {
  vacant,     // the record has no memory
  mapped,     // all of [base, base + count * stride) is mapped
  unmapping,  // empty and about to be unmapped, or on the way back to mapped
};

// How much the pool may take from a slab.
enum class slab_room : std::uint8_t { none, some, all };

struct alignas(64) slab {
  std::atomic<slab_state> state{slab_state::vacant};
  std::uint32_t index = 0;      // in the whole table; written once
  std::byte* base = nullptr;    // ST2
  std::uint8_t count = 0;       // ST2
  std::uint8_t size_class = 0;  // ST2

  // Guarded by the pool's lock; one bit for each place.
  slab_room room = slab_room::none;
  std::uint64_t free = 0;
  std::uint64_t touched = 0;  // may hold memory
  std::uint64_t guarded = 0;  // has its guard
  unsigned* valgrind_ids = nullptr;

  alignas(64) std::atomic<std::uint8_t> in_use[slab_places]{};  // ST4

  std::uint64_t all_places() const noexcept { return ~std::uint64_t{0} >> (slab_places - count); }

  std::size_t bytes() const noexcept { return count * stride_of(size_class); }

  stack at(unsigned place) noexcept {
    std::byte* const bottom = base + place * stride_of(size_class) + stack_guard_size;
    return {
        bottom, bottom + stack_size_of(size_class), reinterpret_cast<std::uintptr_t>(this) | place};
  }
};

static_assert(sizeof(slab) == 128, "two cache lines: what the pool writes, what workers write");

// 64 slabs of one size class. The masks have one bit for each slab and are guarded by the
// pool's lock.
struct chunk {
  std::uint64_t vacant = ~std::uint64_t{0};
  std::uint64_t some = 0;  // slabs with slab_room::some
  std::uint64_t all = 0;   // slabs with slab_room::all
  slab slabs[chunk_slabs];
};

struct slab_table {
  std::atomic<std::uint32_t> chunk_count{0};
  std::atomic<chunk*> chunks[max_chunks]{};
  std::atomic<std::uint32_t> holds{0};
};

extern constinit slab_table slabs;

// Calls visit(base, bytes, argument) for each slab. Lock-free. Caller: holds a slab_hold.
using slab_visitor = void (*)(const std::byte* base, std::size_t bytes, void* argument) noexcept;
VIGIL_FOR_IO void for_each_slab(slab_visitor visit, void* argument) noexcept;

// --- caller of these two: holds the pool's lock
inline chunk& chunk_at(unsigned n) noexcept {
  // ordering: chunks are published under the lock.
  return *slabs.chunks[n].load(std::memory_order_relaxed);
}

// The number of all records: those that have been published.
inline unsigned all_slabs() noexcept {
  // ordering: written only under the lock.
  return slabs.chunk_count.load(std::memory_order_relaxed) * chunk_slabs;
}

// Where a stack lives. The low six bits of `home` are the place: records are
// aligned to 64 bytes.
struct stack_home {
  slab* owner;
  unsigned place;
};

inline stack_home home_of(const stack& s) noexcept {
  return {reinterpret_cast<slab*>(s.home & ~std::uintptr_t{slab_places - 1}),
          static_cast<unsigned>(s.home & (slab_places - 1))};
}

inline void mark_in_use(const stack& s) noexcept {
  const auto [owner, place] = home_of(s);
  // Pairs with the acquire in for_each_stack_in_use() and find_stack().
  owner->in_use[place].store(1, std::memory_order_release);
}

// Returns whether the stack was in use.
inline bool mark_idle(const stack& s) noexcept {
  const auto [owner, place] = home_of(s);
  // ordering: a stack has one owner, which reads back what was written for it.
  if (owner->in_use[place].load(std::memory_order_relaxed) == 0) return false;
  // Pairs with the acquire in for_each_stack_in_use() and find_stack().
  owner->in_use[place].store(0, std::memory_order_release);
  return true;
}

}  // namespace VIGIL_DETAIL
