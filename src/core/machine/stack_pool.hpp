// stack_pool: all stacks of the process, by size class.
//
// The danger. A program that once had a million fibers must not hold their
// memory for ever, and one whose fibers come and go must not pay for mappings
// and page faults each time.
//
// The rule. New stacks come from the lowest slab that has room, so that the
// others run empty. While a run lets them, idle stacks stay warm: they keep their
// memory, as many as stack_decay allows. Beyond that a slab that is wholly free is
// unmapped, except for one of each size class. Fewer are allowed as time passes: then a
// release, or a worker about to sleep, gives back the rest, one slab at a time (decay).
//
// Invariants, whenever the lock is free
//   SP1 chunk.some and chunk.all say for each slab what slab.room says, and
//       the class's sets name exactly the chunks with a bit set.
//   SP2 slab.room is `all` if every place is free, `none` if no place is.
//   SP3 free_touched_ counts the places that are free and touched. A release
//       that finds more of them than max(1024, taken_), and than may be warm, gives
//       back those of its slab, if they are at least as many as the slab's taken places.
//   SP4 a stack in hot_ is taken, not in use, and of the default size.
//   SP5 more than one wholly free slab of a class stays only if it is warm, and then
//       next_step_ is set, or if a slab_hold or the kernel prevented its unmapping, and
//       then overdue_ is set and later calls try again.
#pragma once

#include "core/base/clock_source.hpp"
#include "core/base/nanos.hpp"
#include "core/machine/slab_table.hpp"
#include "core/machine/stack.hpp"
#include "core/machine/stack_decay.hpp"

#include <vigil/detail/config.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace VIGIL_DETAIL {

// A set of chunk numbers that finds its lowest and its highest in O(1).
class chunk_set {
 public:
  bool empty() const noexcept { return summary_ == 0; }

  void insert(unsigned n) noexcept;
  void erase(unsigned n) noexcept;
  unsigned lowest() const noexcept;   // caller: it is not empty
  unsigned highest() const noexcept;  // caller: it is not empty

 private:
  static_assert(max_chunks == 64 * 64);
  std::uint64_t summary_ = 0;
  std::uint64_t words_[64]{};
};

// Which step failed, and its errno.
struct stack_failure {
  enum class step { none, map, guard, table } at = step::none;
  int error = 0;
};

class stack_pool {
 public:
  constexpr stack_pool() noexcept = default;

  // Takes a stack, which is not marked as in use yet; empty, with the reason in
  // `failure`, if none can be had.
  stack take(unsigned size_class, stack_failure& failure) noexcept;

  // Takes at most `room` of the stacks of the default size that are kept for reuse, and
  // returns how many. They are not marked as in use yet.
  std::size_t take_hot(stack* into, std::size_t room) noexcept;

  // Takes `count` idle stacks back.
  void give(const stack* released, std::size_t count) noexcept;

  // Gives back the hot stacks and every empty slab.
  void trim() noexcept;

  // A run begins that lets so many more stacks stay warm. When it ends, nothing stays
  // warm.
  void begin_warm(std::size_t limit) noexcept;
  void end_warm(std::size_t limit) noexcept;

  // Gives back what may not stay warm any more, one slab at most. False if more is due.
  bool decay() noexcept;

  // When decay() has something to do next; never, if nothing is warm.
  nanos next_step() const noexcept;

  // For tests.
  struct touch_counts {
    std::size_t idle = 0;   // free places that may hold memory: free_touched_
    std::size_t first = 0;  // how often a place without memory was taken
  };

  touch_counts counts() noexcept;
  void set_step(nanos length) noexcept;  // while no run is there
  nanos (*clock)() noexcept = &monotonic_now;

 private:
  struct class_state {
    chunk_set vacant;  // chunks of this class with a vacant record
    chunk_set some;    // with a slab that is partly free
    chunk_set all;     // with a slab that is wholly free
    unsigned empty_slabs = 0;
  };

  static constexpr std::size_t hot_capacity = 256;
  static constexpr std::size_t touched_floor = 1024;

  // The rest runs under lock_.
  stack take_from_slabs(unsigned size_class, stack_failure& failure) noexcept;
  stack take_guarded(unsigned size_class) noexcept;
  stack take_place(slab& s, unsigned place) noexcept;
  void release(const stack& released) noexcept;
  bool give_back_free(slab& s) noexcept;
  void drop_hot() noexcept;

  slab* slab_with_room(unsigned size_class, stack_failure& failure) noexcept;
  slab* map_slab(unsigned size_class, stack_failure& failure) noexcept;
  slab* vacant_record(unsigned size_class, stack_failure& failure) noexcept;
  bool guard_place(slab& s, unsigned place) noexcept;
  bool unmap_slab(slab& s) noexcept;
  bool unmap_highest(class_state& of) noexcept;
  void unmap_empty(unsigned size_class, unsigned keep) noexcept;
  void unmap_spare() noexcept;
  void file(slab& s) noexcept;

  bool many_are_idle() const noexcept;
  bool is_warm() const noexcept;
  void plan_step() noexcept;
  bool cool_one() noexcept;
  bool decay_one() noexcept;

  std::mutex lock_;
  class_state classes_[size_class_count];
  std::size_t taken_ = 0;
  std::size_t free_touched_ = 0;
  bool overdue_ = false;
  stack_decay decay_;
  unsigned cooled_down_to_ = 0;  // the slabs from here on have been looked at in this step
  std::size_t first_touches_ = 0;
  std::size_t hot_count_ = 0;
  stack hot_[hot_capacity];

  // Written under lock_, read by any thread.
  std::atomic<nanos> next_step_{never};
};

extern constinit stack_pool process_stacks;

}  // namespace VIGIL_DETAIL
