// fiber_registry: the fibers of one runtime: a list of them, their number, and the limits
// on it and on their stacks.
//
// FR1  A fiber is in the registry from adopt() to the end of its function, or to
//      retire(). It leaves under the lock, so a walk (for_each) finds it alive.
// FR2  A user fiber counts as alive from before it is made until its stack is
//      free. So the main fiber, which waits until it is the last one, outlives
//      all others.
// FR3  The room that options::max_fibers and max_stack_bytes limit is given back
//      before the joiner hears of the end: the joiner may start the next fiber at once.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/fiber/end_listener.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/fiber/scheduler_options.hpp"

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// Numbers for the fibers that a worker makes: from `next` on, before `last`.
struct number_block {
  std::uint64_t next = 0;
  std::uint64_t last = 0;
};

class fiber_registry {
 public:
  fiber_registry(const scheduler_options& settings, end_listener& main) noexcept
      : max_fibers_(settings.max_fibers),
        max_stack_bytes_(settings.max_stack_bytes),
        has_limits_(max_fibers_ != 0 || max_stack_bytes_ != 0),
        id_block_(settings.virtual_time ? 1 : 64),
        main_(main) {}

  // Whether a fiber of this role counts as alive and against max_fibers; the others are
  // ours.
  static bool counts(fiber_role role) noexcept {
    return role == fiber_role::user || role == fiber_role::main;
  }

  // --- the list
  void add(fiber& f) noexcept;
  void remove(fiber& f) noexcept;

  // Calls f with each fiber, under a lock that keeps the fiber alive.
  template <class F>
  void for_each(F&& f) noexcept {
    for (shard& s : shards_) {
      const lock_guard guard(s.lock);
      for (fiber* one = s.fibers.front(); one != nullptr; one = fiber_list::next(*one))
        f(*one);
    }
  }

  // Whether is(fiber) is true for one of them, likewise.
  template <class Is>
  bool any_of(Is is) noexcept {
    for (shard& s : shards_) {
      const lock_guard guard(s.lock);
      for (fiber* one = s.fibers.front(); one != nullptr; one = fiber_list::next(*one)) {
        if (is(*one)) return true;
      }
    }
    return false;
  }

  // --- the number: one more, or one less
  void count_alive(int change) noexcept;   // a user fiber, or a runner during its turn
  void count_system(int change) noexcept;  // one of ours

  std::size_t alive() const noexcept { return alive_.load() & low_half; }

  std::size_t system() const noexcept { return system_.load(); }

  // The number alive in the lower half, and in the upper half how often a fiber was
  // added: as long as the word stays the same, no fiber has come and gone in between.
  std::uint64_t history() const noexcept { return alive_.load(); }

  static std::size_t alive_in(std::uint64_t history) noexcept { return history & low_half; }

  // --- the limits
  // Throws limit_reached.
  void take_room(fiber_role role, std::size_t stack_size) {
    if (has_limits_) take_limited(role, stack_size);
  }

  void give_room(fiber_role role, std::size_t stack_size) noexcept {
    if (has_limits_) give_limited(role, stack_size);
  }

  // Whether max_stack_bytes has so much left.
  bool has_stack_room(std::size_t bytes) const noexcept {
    return bytes <= max_stack_bytes_ && stack_bytes_.load() <= max_stack_bytes_ - bytes;
  }

  // --- the ids. `own`: the calling worker's, if it belongs to this runtime.
  std::uint64_t take_id(number_block* own) noexcept;

 private:
  struct shard {
    alignas(cache_line) spinlock lock{lock_rank::registry};
    fiber_list fibers VIGIL_GUARDED_BY(lock);
  };

  static constexpr std::size_t shards = 16;
  static constexpr std::uint64_t low_half = 0xffff'ffff;
  static constexpr std::uint64_t one_more = (std::uint64_t{1} << 32) + 1;

  void take_limited(fiber_role role, std::size_t stack_size);
  void give_limited(fiber_role role, std::size_t stack_size) noexcept;

  shard& shard_of(const fiber& f) noexcept { return shards_[f.identity.id % shards]; }

  const std::size_t max_fibers_;
  const std::size_t max_stack_bytes_;
  const bool has_limits_;
  const std::uint64_t id_block_;  // virtual time counts one by one
  end_listener& main_;

  shard shards_[shards];
  alignas(cache_line) atomic<std::uint64_t> next_id_{1};
  alignas(cache_line) atomic<std::uint64_t> alive_{0};
  atomic<std::size_t> system_{0};
  atomic<std::size_t> stack_bytes_{0};  // counted if max_stack_bytes is set
  atomic<std::size_t> limited_{0};      // user fibers, counted if max_fibers is set
};

}  // namespace VIGIL_DETAIL
