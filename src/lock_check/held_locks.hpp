// held_locks: the locks of the operating system (std::mutex, std::shared_mutex) that
// fibers hold. A record belongs to the fiber, which may go on on another thread, and not
// to the thread that took the lock.
//
// The functions may be called inside an allocator, so they use no heap. Any thread.
#pragma once

#include "core/base/atomic.hpp"
#include "core/sched/fiber/fiber.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// A fiber, for as long as the process lives: the control block alone would name its next
// user as well.
struct fiber_key {
  explicit fiber_key(const fiber& f) noexcept;
  fiber_key() = default;

  bool operator==(const fiber_key&) const = default;

  const fiber* block = nullptr;
  std::uint64_t runtime = 0;
  std::uint64_t id = 0;
};

enum class lock_kind : std::uint8_t {
  mutex,        // has one holder: an unlock by anybody is that one's
  shared_mutex  // may have many: each unlocks its own
};

constexpr const char* to_string(lock_kind k) noexcept {
  return k == lock_kind::mutex ? "a mutex" : "a shared mutex";
}

struct held_lock {
  static constexpr unsigned most_places = 8;

  const void* lock = nullptr;
  fiber_key holder;
  lock_kind kind = lock_kind::mutex;
  bool has_more_places = false;
  unsigned count = 0;
  std::uintptr_t places[most_places] = {};  // where it was locked, as in frame_list
};

class held_locks {
 public:
  // False if there is no room for it.
  bool add(const held_lock& h) noexcept;

  // Takes out the record of the fiber's last lock of this one. False if it has none.
  bool take(const fiber_key& holder, const void* lock, held_lock& out) noexcept;

  // The same, whichever fiber has it.
  bool take_of_any(const void* lock, held_lock& out) noexcept;

  // The n-th lock that the fiber holds. False if it holds no more than n.
  bool get(const fiber_key& holder, unsigned n, held_lock& out) noexcept;

  // False if no fiber holds any. A fiber always sees what it has added itself.
  bool any() const noexcept {
    // ordering: a fiber's own records are counted before, whichever thread it was on.
    return count_.load(order::relaxed) != 0;
  }

 private:
  // The records of the fibers whose control blocks lie there.
  struct shard {
    static constexpr unsigned room = 32;

    void erase(unsigned i) noexcept;

    // Not a spinlock of the library's: any of those may be held already.
    atomic<bool> taken{false};
    unsigned used = 0;
    held_lock records[room];
  };

  class shard_hold;

  static constexpr unsigned shards = 64;

  shard& of(const fiber_key& k) noexcept;
  bool take_from(shard& s, const fiber_key* holder, const void* lock, held_lock& out) noexcept;

  atomic<std::uint32_t> count_{0};
  shard shards_[shards];
};

}  // namespace VIGIL_DETAIL
