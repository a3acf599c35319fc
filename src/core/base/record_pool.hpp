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
// slab is cut a bundle at a time, so that memory that is not taken is never touched. Its
// first place holds its own note, for look_through().
#pragma once

#include "core/base/lock_rank.hpp"
#include "core/base/spinlock.hpp"
#include "core/base/thread_annotations.hpp"

#include <cstddef>

namespace VIGIL_DETAIL {

class record_pool {
  struct link {
    link* next;         // within a bundle
    link* next_bundle;  // used in a bundle's first record, as is `size`
    std::size_t size;
  };

  struct slab {
    slab* next;
    std::byte* end;
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

  // How many records are out: taken, or in a cache.
  std::size_t out() const noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    return out_;
  }

  // Calls look(memory) for each place that was ever cut. Behind the first 24 bytes such a
  // place is as its last record was left; all zero if it was never taken.
  template <class Look>
  void look_through(Look look) VIGIL_EXCLUDES(lock_) {
    slab* s = nullptr;
    std::byte* cut = nullptr;
    {
      const lock_guard guard(lock_);
      s = slabs_;
      cut = rest_.records != 0 ? rest_.at : nullptr;
    }
    for (; s != nullptr; s = s->next) {  // the newest first, and only that has a rest
      std::byte* const end = cut != nullptr ? cut : s->end;
      cut = nullptr;
      for (std::byte* at = reinterpret_cast<std::byte*>(s) + size_; at != end; at += size_)
        look(static_cast<void*>(at));
    }
  }

 private:
  static constexpr std::size_t bundle = 32;

  struct uncut {
    std::byte* at = nullptr;
    std::size_t records = 0;
  };

  link* take_bundle() VIGIL_EXCLUDES(lock_);
  void add_slab() VIGIL_EXCLUDES(lock_);
  void give_bundle(link* first, std::size_t size) noexcept VIGIL_EXCLUDES(lock_);

  mutable spinlock lock_{lock_rank::records};
  link* bundles_ VIGIL_GUARDED_BY(lock_) = nullptr;
  uncut rest_ VIGIL_GUARDED_BY(lock_);              // of the newest slab
  slab* slabs_ VIGIL_GUARDED_BY(lock_) = nullptr;   // the newest first; only grows
  std::size_t mapped_ VIGIL_GUARDED_BY(lock_) = 0;  // bytes in all slabs
  std::size_t out_ VIGIL_GUARDED_BY(lock_) = 0;
  const std::size_t size_;
};

}  // namespace VIGIL_DETAIL
