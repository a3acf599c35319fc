#include "lock_check/held_locks.hpp"

#include "core/base/spinlock.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>

namespace VIGIL_DETAIL {

fiber_key::fiber_key(const fiber& f) noexcept
    : block(&f), runtime(f.sched->number()), id(f.identity.id) {}

class held_locks::shard_hold {
 public:
  explicit shard_hold(shard& s) noexcept : shard_(s) { spinlock::take(s.taken); }

  ~shard_hold() { spinlock::give(shard_.taken); }

  shard_hold(const shard_hold&) = delete;
  shard_hold& operator=(const shard_hold&) = delete;

 private:
  shard& shard_;
};

void held_locks::shard::erase(unsigned i) noexcept {
  std::move(records + i + 1, records + used, records + i);
  --used;
}

held_locks::shard& held_locks::of(const fiber_key& k) noexcept {
  const auto number = reinterpret_cast<std::uintptr_t>(k.block) >> 16;  // a stack is larger
  return shards_[(number ^ number >> 6) % shards];
}

bool held_locks::add(const held_lock& h) noexcept {
  shard& s = of(h.holder);
  const shard_hold hold(s);
  // Left behind by fibers that have ended, and whose place this one has.
  for (unsigned i = s.used; i-- > 0;) {
    const fiber_key& k = s.records[i].holder;
    if (k.block != h.holder.block || k == h.holder) continue;
    s.erase(i);
    count_.fetch_sub(1, order::relaxed);  // ordering: as in any()
  }
  if (s.used == shard::room) return false;
  s.records[s.used++] = h;
  count_.fetch_add(1, order::relaxed);  // ordering: as in any()
  return true;
}

bool held_locks::take_from(shard& s,
                           const fiber_key* holder,
                           const void* lock,
                           held_lock& out) noexcept {
  const shard_hold hold(s);
  for (unsigned i = s.used; i-- > 0;) {
    const held_lock& h = s.records[i];
    if (h.lock != lock) continue;
    if (holder != nullptr ? h.holder != *holder : h.kind != lock_kind::mutex) continue;
    out = h;
    s.erase(i);
    count_.fetch_sub(1, order::relaxed);  // ordering: as in any()
    return true;
  }
  return false;
}

bool held_locks::take(const fiber_key& holder, const void* lock, held_lock& out) noexcept {
  return any() && take_from(of(holder), &holder, lock, out);
}

bool held_locks::take_of_any(const void* lock, held_lock& out) noexcept {
  if (!any()) return false;
  return std::any_of(
      shards_, shards_ + shards, [&](shard& s) { return take_from(s, nullptr, lock, out); });
}

bool held_locks::get(const fiber_key& holder, unsigned n, held_lock& out) noexcept {
  if (!any()) return false;
  shard& s = of(holder);
  const shard_hold hold(s);
  for (unsigned i = 0; i < s.used; ++i) {
    if (s.records[i].holder != holder || n-- != 0) continue;
    out = s.records[i];
    return true;
  }
  return false;
}

}  // namespace VIGIL_DETAIL
