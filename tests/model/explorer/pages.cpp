// Large regions of which a program uses few pages: the stacks and the program's mappings.
//
// No page is accessible before its first use, which comes to begins_page() as a crash. So
// the explorer knows the pages that have contents, and need not ask the system to drop
// them after each run: faults and flushes took a third of its time.
#include "explorer/world.hpp"

#include <array>
#include <cstdlib>
#include <new>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace model {
namespace {

constexpr std::size_t most_pages = 1 << 16;

struct page_table {
  struct region {
    const std::byte* start = nullptr;
    std::size_t size = 0;
  };

  std::array<region, 4> regions;
  std::size_t region_count = 0;
  std::array<std::byte*, most_pages> used;
  std::size_t used_count = 0;
};

// Allocated, so that it is no part of the program's static memory.
page_table* the_pages = nullptr;

}  // namespace

std::byte* reserve_pages(std::size_t size) {
  if (the_pages == nullptr) the_pages = new page_table;
  if (the_pages->region_count == the_pages->regions.size()) std::abort();
  void* const at =
      ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  auto* const start = static_cast<std::byte*>(at);
  the_pages->regions[the_pages->region_count++] = {start, size};
  return start;
}

bool begins_page(const void* address) noexcept {
  if (the_pages == nullptr) return false;
  page_table& p = *the_pages;
  const auto* const at = static_cast<const std::byte*>(address);
  for (std::size_t i = 0; i < p.region_count; ++i) {
    const page_table::region& r = p.regions[i];
    if (at < r.start || at >= r.start + r.size || p.used_count == most_pages) continue;
    const auto page = static_cast<std::size_t>(at - r.start) / page_size * page_size;
    auto* const first = const_cast<std::byte*>(r.start) + page;
    for (std::size_t k = 0; k < p.used_count; ++k) {
      if (p.used[k] == first) return false;
    }
    // The call itself: mprotect() is the program's.
    if (::syscall(SYS_mprotect, first, page_size, PROT_READ | PROT_WRITE) != 0) return false;
    p.used[p.used_count++] = first;
    return true;
  }
  return false;
}

std::span<std::byte* const> used_pages() noexcept {
  return {the_pages->used.data(), the_pages->used_count};
}

}  // namespace model
