// The array of a timer_heap, and its memory.
//
//   entries_          size_       touched_          capacity_        reserved_
//   |---- entries ----|-- stale --|-- no memory ----|-- no access ---|
//
// These hold whenever no member function is running; verify() checks TH1 and TH2:
//
//   TH1 order   slot i is not before its parent (i - 1) / 2. The order is
//               (key, tie), read from the slots alone.
//   TH2 bounds  size_ <= touched_ <= capacity_, and capacity_ entries fit in
//               committed_ <= reserved_.
//   TH3 memory  no slot from touched_ on lies in a page that holds memory, but
//               for the grain in which touched_ ends.
//
// The danger. Between arming and merging an entry waits outside the heap, with a slot
// that reserve() has promised. Giving back the right to write there would make the merge
// allocate. So memory is given back, but the commit is not.
//
// The cost of giving back. Only slots that were pushed into since the last time are
// freed, and room for twice the present entries stays: the heap must double before a page
// faults again, O(1) per push. One step frees one grain that is a huge page, or at most
// 256 KiB of small ones, so that the owner's lock is never held for a whole burst.
//
// From 2 MiB on (87 000 entries) huge pages are asked for: the lower half of a sift in a
// large heap would otherwise walk the page tables at each level.
#include "core/timer/timer_heap.hpp"

#include "core/base/huge_page.hpp"

#include <algorithm>
#include <new>

#include <sys/mman.h>

namespace VIGIL_DETAIL {
namespace {

constexpr std::size_t most_reserved = std::size_t{16} << 30;
constexpr std::size_t least_reserved = std::size_t{1} << 20;
constexpr std::size_t most_given_back = std::size_t{256} << 10;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

// The unit in which memory is committed and given back at this place.
constexpr std::size_t grain_at(std::size_t bytes, std::size_t small) noexcept {
  return bytes <= huge_page ? small : huge_page;
}

// Compilers make this one rarely taken branch (equal keys) and one flag. Forms with no
// branch at all (bitwise, or as one 128-bit number) measure slower.
inline bool before(const heap_entry& a, const heap_entry& b) noexcept {
  return a.key != b.key ? a.key < b.key : static_cast<std::int32_t>(a.tie - b.tie) < 0;
}

// Asks for the eight slots three levels below, four cache lines, of which the way down
// needs one. In a heap larger than the cache this halves a pop. Without always_inline g++
// 12 believes that the function has no effect and drops the call.
[[gnu::always_inline]] inline void prefetch_below(const heap_entry* entries,
                                                  std::size_t hole,
                                                  std::size_t size) noexcept {
  if (8 * hole + 14 >= size) return;
  __builtin_prefetch(&entries[8 * hole + 7]);
  __builtin_prefetch(&entries[8 * hole + 10]);
  __builtin_prefetch(&entries[8 * hole + 12]);
  __builtin_prefetch(&entries[8 * hole + 14]);
}

// Moves the hole up to where the entry belongs, and puts it there.
inline void climb(heap_entry* entries, std::size_t hole, const heap_entry& entry) noexcept {
  while (hole > 0) {
    const std::size_t parent = (hole - 1) / 2;
    if (!before(entry, entries[parent])) break;
    entries[hole] = entries[parent];
    hole = parent;
  }
  entries[hole] = entry;
}

// Moves the hole down to a leaf, along the smaller children; returns the leaf.
inline std::size_t sink(heap_entry* entries, std::size_t hole, std::size_t size) noexcept {
  std::size_t child = 2 * hole + 1;
  while (child + 1 < size) {
    prefetch_below(entries, hole, size);
    child += static_cast<std::size_t>(before(entries[child + 1], entries[child]));
    entries[hole] = entries[child];
    hole = child;
    child = 2 * hole + 1;
  }
  if (child < size) {
    entries[hole] = entries[child];
    hole = child;
  }
  return hole;
}

// Moves the hole two levels down, along the smaller children. False if the entry belongs
// somewhere on that way; it has then been put there.
inline bool descend(heap_entry* entries,
                    std::size_t& hole,
                    const heap_entry& entry,
                    std::size_t size) noexcept {
  for (int level = 0; level < 2; ++level) {
    std::size_t child = 2 * hole + 1;
    if (child + 1 < size)
      child += static_cast<std::size_t>(before(entries[child + 1], entries[child]));
    if (child >= size || !before(entries[child], entry)) {
      entries[hole] = entry;
      return false;
    }
    entries[hole] = entries[child];
    hole = child;
  }
  __builtin_prefetch(&entries[2 * hole + 1]);
  __builtin_prefetch(&entries[2 * hole + 2]);
  __builtin_prefetch(&entries[4 * hole + 3]);
  __builtin_prefetch(&entries[4 * hole + 6]);
  return true;
}

}  // namespace

timer_heap::timer_heap() {
  for (std::size_t bytes = most_reserved; bytes >= least_reserved; bytes /= 2) {
    void* const address = ::mmap(
        nullptr, bytes + huge_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) continue;
    auto* const start = static_cast<std::byte*>(address);
    const std::size_t skipped = (0 - reinterpret_cast<std::uintptr_t>(start)) % huge_page;
    if (skipped != 0) ::munmap(start, skipped);
    ::munmap(start + skipped + bytes, huge_page - skipped);
    entries_ = reinterpret_cast<heap_entry*>(start + skipped);
    reserved_ = bytes;
    // gdb's generate-core-file writes even what was never touched.
    ::madvise(entries_, bytes, MADV_DONTDUMP);
    // A refusal costs speed only.
    if (bytes > huge_page) ::madvise(start + skipped + huge_page, bytes - huge_page, MADV_HUGEPAGE);
    return;
  }
  throw std::bad_alloc();
}

timer_heap::~timer_heap() {
  ::munmap(entries_, reserved_);
}

bool timer_heap::reserve(std::size_t entries) noexcept {
  if (entries <= capacity_) return true;
  if (entries > reserved_ / sizeof(heap_entry)) return false;

  const auto commit = [this](std::size_t bytes) noexcept {
    if (::mprotect(entries_, bytes, PROT_READ | PROT_WRITE) != 0) {
      // At the limit of mappings: what is dumped and what is not are one mapping less.
      ::madvise(entries_, reserved_, MADV_DODUMP);
      if (::mprotect(entries_, bytes, PROT_READ | PROT_WRITE) != 0) return false;
    }
    ::madvise(entries_, bytes, MADV_DODUMP);
    committed_ = bytes;
    capacity_ = bytes / sizeof(heap_entry);
    return true;
  };

  // reserved_ is a multiple of every grain that occurs in it, so neither size
  // passes its end.
  const auto rounded = [](std::size_t bytes) { return round_up(bytes, grain_at(bytes, grain)); };
  const std::size_t needed = rounded(entries * sizeof(heap_entry));
  const std::size_t generous = std::min(rounded(committed_ + committed_ / 2), reserved_);
  return (generous > needed && commit(generous)) || commit(needed);
}

void timer_heap::push(heap_entry entry) noexcept {
  VIGIL_ASSERT(size_ < capacity_, "timer_heap: push() without a slot; reserve() one first");
  const std::size_t hole = size_++;
  touched_ = std::max(touched_, size_);
  climb(entries_, hole, entry);
}

heap_entry timer_heap::pop() noexcept {
  return remove(0);
}

// A pop waits for one cache miss after another. Here several are under way at
// once, each two levels above the one before: a leaf taken off the end of the
// array goes down from the root, fetches the slots of its next two levels, and
// comes to its next turn when they are there. The deepest moves first, so that
// no leaf looks at a slot whose entry is still to come.
std::size_t timer_heap::pop_until(nanos limit, heap_entry* out, std::size_t most) noexcept {
  struct descent {
    std::size_t hole;
    std::size_t leaf;  // its slot, now past the end
  };

  // An older descent may end in the very slot that a newer one has as its leaf.
  // It is deeper, moves first in each round, and so has put its entry there
  // before the newer one reads it.

  // One begins in each round, and each goes down two levels in a round.
  static_assert(most_reserved / sizeof(heap_entry) >> (2 * most_descents - 1) == 0,
                "the deepest ends before there is one too many");
  descent descents[most_descents];  // the deepest first
  std::size_t under_way = 0;
  std::size_t n = 0;
  for (;;) {
    const bool more = n < most && size_ >= large && entries_[0].when() <= limit;
    if (more) {
      out[n++] = entries_[0];
      descents[under_way++] = {0, --size_};
    } else if (under_way == 0) {
      break;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < under_way; ++i) {
      descent d = descents[i];
      if (descend(entries_, d.hole, entries_[d.leaf], size_)) descents[kept++] = d;
    }
    under_way = kept;
  }
  while (n < most && size_ != 0 && entries_[0].when() <= limit)
    out[n++] = pop();
  shrink();
  return n;
}

// Works bottom-up: the last leaf almost always belongs near a leaf, so comparing it on
// the way down is wasted.
heap_entry timer_heap::remove(std::size_t index) noexcept {
  VIGIL_ASSERT(index < size_, "timer_heap: remove() of a slot past the end");
  const heap_entry removed = entries_[index];
  const heap_entry last = entries_[--size_];
  if (index != size_) {
    // The last leaf can come from another subtree and be before the hole's
    // parent, so it may climb past `index`.
    climb(entries_, sink(entries_, index, size_), last);
  }
  shrink();
  return removed;
}

void timer_heap::give_back() noexcept {
  const auto rounded = [](std::size_t bytes) { return round_up(bytes, grain_at(bytes, grain)); };
  const std::size_t end = rounded(touched_ * sizeof(heap_entry));
  const std::size_t keep = std::max(rounded(2 * size_ * sizeof(heap_entry)), grain);
  const std::size_t step = end > huge_page ? huge_page : most_given_back;
  const std::size_t begin = std::max(keep, end - std::min(end, step));
  // A refusal (locked memory) costs memory only, and is not tried again.
  ::madvise(reinterpret_cast<std::byte*>(entries_) + begin, end - begin, MADV_DONTNEED);
  touched_ = begin / sizeof(heap_entry);
}

bool timer_heap::verify() const noexcept {
  if (size_ > touched_ || touched_ > capacity_) return false;
  if (capacity_ * sizeof(heap_entry) > committed_ || committed_ > reserved_) return false;
  for (std::size_t i = 1; i < size_; ++i) {
    if (before(entries_[i], entries_[(i - 1) / 2])) return false;
  }
  return true;
}

}  // namespace VIGIL_DETAIL
