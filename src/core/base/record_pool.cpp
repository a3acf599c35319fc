#include "core/base/record_pool.hpp"

#include "core/base/huge_page.hpp"

#include <cstdint>
#include <new>

#include <sys/mman.h>

namespace VIGIL_DETAIL {

namespace {

constexpr std::size_t small_slab = 64 * 1024;
constexpr std::size_t small_slabs = 1024 * 1024;  // bytes of them, before large ones

// Maps 2 MiB, aligned to 2 MiB, so that one huge page may hold it; nullptr if there is no
// room for the 4 MiB that this takes for a moment.
std::byte* map_large_slab() {
  void* const mapped =
      ::mmap(nullptr, 2 * huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(mapped);
  const std::size_t before = (0 - reinterpret_cast<std::uintptr_t>(start)) % huge_page;
  if (before != 0) ::munmap(start, before);
  ::munmap(start + before + huge_page, huge_page - before);
  // A refusal costs speed only.
  ::madvise(start + before, huge_page, MADV_HUGEPAGE);
  return start + before;
}

std::byte* map_small_slab() {
  void* const mapped =
      ::mmap(nullptr, small_slab, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(mapped);
}

}  // namespace

// Makes the system calls without the lock. If another thread has added a slab meanwhile,
// this one is given back.
void record_pool::add_slab() {
  std::size_t mapped = 0;
  {
    const lock_guard guard(lock_);
    mapped = mapped_;
  }
  std::byte* room = mapped < small_slabs ? nullptr : map_large_slab();
  const std::size_t size = room != nullptr ? huge_page : small_slab;
  if (room == nullptr) room = map_small_slab();
  {
    const lock_guard guard(lock_);
    if (rest_.records == 0) {
      const std::size_t records = size / size_ - 1;
      rest_ = {room + size_, records};
      slabs_ = ::new (static_cast<void*>(room)) slab{slabs_, room + (records + 1) * size_};
      mapped_ += size;
      return;
    }
  }
  ::munmap(room, size);
}

record_pool::link* record_pool::take_bundle() {
  for (;;) {
    uncut fresh;
    {
      const lock_guard guard(lock_);
      if (bundles_ != nullptr) {
        link* const first = bundles_;
        bundles_ = first->next_bundle;
        out_ += first->size;
        return first;
      }
      fresh = {rest_.at, rest_.records < bundle ? rest_.records : bundle};
      rest_.at += fresh.records * size_;
      rest_.records -= fresh.records;
      out_ += fresh.records;
    }
    if (fresh.records == 0) {
      add_slab();
      continue;
    }
    // Touched without the lock: the first touch of a page is a fault.
    link* first = nullptr;
    for (std::size_t i = fresh.records; i-- > 0;) {
      auto* const record = reinterpret_cast<link*>(fresh.at + i * size_);
      record->next = first;
      first = record;
    }
    first->size = fresh.records;
    return first;
  }
}

void record_pool::give_bundle(link* first, std::size_t size) noexcept {
  first->size = size;
  const lock_guard guard(lock_);
  out_ -= size;
  first->next_bundle = bundles_;
  bundles_ = first;
}

void* record_pool::cache::take(record_pool& pool) {
  if (free_ == nullptr) {
    free_ = pool.take_bundle();
    for (link* r = free_; r != nullptr; r = r->next)
      ++count_;
  }
  link* const record = free_;
  free_ = record->next;
  --count_;
  return record;
}

void record_pool::cache::give(record_pool& pool, void* record) noexcept {
  auto* const freed = static_cast<link*>(record);
  freed->next = free_;
  free_ = freed;
  if (++count_ < 2 * bundle) return;
  // Keeps one bundle, gives one back.
  link* const first = free_;
  link* last = free_;
  for (std::size_t i = 1; i < bundle; ++i)
    last = last->next;
  free_ = last->next;
  last->next = nullptr;
  count_ -= bundle;
  pool.give_bundle(first, bundle);
}

void record_pool::cache::flush(record_pool& pool) noexcept {
  if (free_ != nullptr) pool.give_bundle(free_, count_);
  free_ = nullptr;
  count_ = 0;
}

void* record_pool::take() {
  link* const first = take_bundle();
  if (first->next != nullptr) give_bundle(first->next, first->size - 1);
  return first;
}

void record_pool::give(void* record) noexcept {
  auto* const freed = static_cast<link*>(record);
  freed->next = nullptr;
  give_bundle(freed, 1);
}

}  // namespace VIGIL_DETAIL
