// record_pool: memory for records that outlive their users. It is type-stable (a record's
// memory is only ever used for records of this pool again, and never returned to the
// system), and cheap to take and give back on any thread.
//
// Each thread that calls often keeps a cache of its own. Caches exchange bundles of
// records with the pool under its lock, so a record may be given back on another thread
// than the one that took it.
//
// Memory comes in slabs of 64 KiB, and from 1 MiB on in slabs of 2 MiB, for which huge
// pages are requested: a random access among a million records costs a cache miss, and
// should not cost a walk through the page tables as well (bench/, docs/performance.md). A
// slab is cut a bundle at a time, so that memory that is not taken is never touched.
#pragma once

#include "base/lock_rank.hpp"
#include "base/spinlock.hpp"
#include "base/thread_annotations.hpp"

#include <cstddef>

namespace vigil::inline VIGIL_ABI::detail {

class record_pool {
  struct link {
    link* next;         // within a bundle
    link* next_bundle;  // used in a bundle's first record
  };

 public:
  // size: bytes of a record, a multiple of 16.
  explicit constexpr record_pool(std::size_t size) noexcept : size_(size) {}

  record_pool(const record_pool&) = delete;
  record_pool& operator=(const record_pool&) = delete;

  // The free records of one owner. Used by one thread at a time.
  class cache {
   public:
    void* take(record_pool& pool);  // throws std::bad_alloc
    void give(record_pool& pool, void* record) noexcept;
    void flush(record_pool& pool) noexcept;  // gives all back

   private:
    link* free_ = nullptr;
    std::size_t count_ = 0;
  };

  // For threads without a cache.
  void* take() VIGIL_EXCLUDES(lock_);  // throws std::bad_alloc
  void give(void* record) noexcept VIGIL_EXCLUDES(lock_);

 private:
  static constexpr std::size_t bundle = 32;

  struct uncut {
    std::byte* at = nullptr;
    std::size_t records = 0;
  };

  link* take_bundle() VIGIL_EXCLUDES(lock_);
  void add_slab() VIGIL_EXCLUDES(lock_);
  void give_bundle(link* first) noexcept VIGIL_EXCLUDES(lock_);

  spinlock lock_{lock_rank::records};
  link* bundles_ VIGIL_GUARDED_BY(lock_) = nullptr;
  link* singles_ VIGIL_GUARDED_BY(lock_) = nullptr;
  uncut rest_ VIGIL_GUARDED_BY(lock_);              // of the newest slab
  std::size_t mapped_ VIGIL_GUARDED_BY(lock_) = 0;  // bytes in all slabs
  const std::size_t size_;
};

}  // namespace vigil::inline VIGIL_ABI::detail
