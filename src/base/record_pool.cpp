#include "base/record_pool.hpp"

#include <new>

#include <sys/mman.h>

namespace vigil::internal {

// Cuts a fresh slab into bundles; the first is returned, the others are kept.
record_pool::link* record_pool::take_bundle() {
  {
    const lock_guard guard(lock_);
    if (bundles_ != nullptr) {
      link* const first = bundles_;
      bundles_ = first->next_bundle;
      return first;
    }
    // What threads without a cache gave back.
    if (singles_ != nullptr) {
      link* const first = singles_;
      link* last = first;
      for (std::size_t i = 1; i < bundle && last->next != nullptr; ++i)
        last = last->next;
      singles_ = last->next;
      last->next = nullptr;
      return first;
    }
  }
  // The system call is made without the lock: another thread may cut a slab at
  // the same time, which costs memory, not correctness.
  void* const slab =
      ::mmap(nullptr, slab_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slab == MAP_FAILED) throw std::bad_alloc();
  const std::size_t records = slab_bytes / size_;
  link* mine = nullptr;
  link* rest = nullptr;
  link* last_rest = nullptr;
  for (std::size_t i = 0; i < records; i += bundle) {
    link* first = nullptr;
    const std::size_t end = i + bundle < records ? i + bundle : records;
    for (std::size_t k = end; k-- > i;) {
      auto* const record = reinterpret_cast<link*>(static_cast<std::byte*>(slab) + k * size_);
      record->next = first;
      record->next_bundle = nullptr;
      first = record;
    }
    if (mine == nullptr) {
      mine = first;
    } else {
      first->next_bundle = rest;
      if (rest == nullptr) last_rest = first;
      rest = first;
    }
  }
  if (rest != nullptr) {
    const lock_guard guard(lock_);
    last_rest->next_bundle = bundles_;
    bundles_ = rest;
  }
  return mine;
}

void record_pool::give_bundle(link* first) noexcept {
  const lock_guard guard(lock_);
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
  pool.give_bundle(first);
}

void record_pool::cache::flush(record_pool& pool) noexcept {
  if (free_ != nullptr) pool.give_bundle(free_);
  free_ = nullptr;
  count_ = 0;
}

void* record_pool::take() {
  {
    const lock_guard guard(lock_);
    if (singles_ != nullptr) {
      link* const record = singles_;
      singles_ = record->next;
      return record;
    }
  }
  link* const first = take_bundle();
  if (first->next != nullptr) {
    link* last = first->next;
    const lock_guard guard(lock_);
    while (last->next != nullptr)
      last = last->next;
    last->next = singles_;
    singles_ = first->next;
  }
  return first;
}

void record_pool::give(void* record) noexcept {
  auto* const freed = static_cast<link*>(record);
  const lock_guard guard(lock_);
  freed->next = singles_;
  singles_ = freed;
}

}  // namespace vigil::internal
