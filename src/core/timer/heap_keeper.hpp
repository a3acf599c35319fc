// heap_keeper: the heap of pending timers, and the intakes in front of it.
//
// The holder of lock_ owns the heap: the timer fiber when it fires, a worker about to
// sleep (tidy), the owner of a full intake, a runner that files a timer again. Only the
// timer fiber pops, but for entries that are dead or postponed (tidy, sweep) and the end
// of the run (take_any). The lock is held for bounded pieces of work.
//
// HK1 timer_board::next_deadline is never later than the earliest key in the
//     heap and the intakes, once an arming has returned and no publish() is
//     under way. Arming adds to the intake, then lowers next_deadline. Raising
//     happens in publish() only: read it, drain all intakes, compare-exchange
//     it to the top's key, look at the intakes once more, and begin again if
//     the exchange failed or one is not empty. All sequentially consistent: an
//     entry added after the last look lowers next_deadline after the exchange.
// HK2 An arming that has lowered next_deadline, and no other, then looks for a sleeper
//     (idle.hpp). A deadline that publish() lowers is covered by the worker that calls
//     publish(): it lies down with it, or covers it before it enters user code.
// HK3 heap_.capacity() >= heap_.size() + taken_ + granted_. taken_ counts
//     entries that were popped and may come back; granted_ the entries in the
//     intakes and those their owners may still add. So a merge never
//     allocates; arming asks for a grant before it changes anything, and
//     throws bad_alloc there.
#pragma once

#include "core/base/random.hpp"
#include "core/base/spinlock.hpp"
#include "core/timer/intake.hpp"
#include "core/timer/records.hpp"
#include "core/timer/timer_heap.hpp"
#include "core/timer/timer_owner.hpp"

#include <vigil/stats.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace VIGIL_DETAIL {

class heap_keeper {
 public:
  // Gives each worker its intake. Throws std::bad_alloc.
  heap_keeper(scheduler& sched, const timer_owner& owner);

  // The intake of threads that have none of their own; used under timer_owner::outside.
  intake& shared_intake() noexcept { return intakes_.back(); }

  // --- arming
  // As timer_service::arm_at(). Caller: owns the intake.
  bool arm(intake& in, runtime_timer& t, nanos deadline, bool parking);

  // Gives an arming its place among equal keys, if they have places. Caller: is about to
  // change t's `when`.
  void draw_tie(runtime_timer& t) noexcept;

  // The entry that files t under `key`.
  static heap_entry entry_for(runtime_timer& t, nanos key) noexcept;

  // The number of pending timers; exact while no thread arms one.
  std::uint64_t pending() const noexcept;

  // --- firing. An entry that is taken keeps its slot until the caller puts it back or
  // gives the slot up (HK3).
  // Takes the entries that are due, and those whose slack allows it. `given_up`: how many
  // slots of earlier entries the caller gives up.
  std::size_t take_due(nanos now, heap_entry* out, std::size_t most, std::size_t given_up) noexcept
      VIGIL_EXCLUDES(lock_);
  void put_back(const heap_entry* entries, std::size_t n) noexcept VIGIL_EXCLUDES(lock_);
  void give_up_slot() noexcept VIGIL_EXCLUDES(lock_);
  // Ends `held`: takes the runner's last look at `when` (RT1), and files the timer again
  // if it is pending. Takes over the caller's reference.
  void refile_periodic(timer_record& t) noexcept VIGIL_EXCLUDES(lock_);
  // Takes entries at the end of the run, due or not. They keep no slot.
  std::size_t take_any(heap_entry* out, std::size_t most) noexcept VIGIL_EXCLUDES(lock_);

  // --- for workers, as in timer_seam.hpp
  bool tidy() noexcept VIGIL_EXCLUDES(lock_);
  nanos second_deadline() noexcept VIGIL_EXCLUDES(lock_);
  bool anything_due(nanos now) noexcept VIGIL_EXCLUDES(lock_);

  // Calls look(entry) for every entry: those of the intakes first, since they go into the
  // heap from there. It works in slices, so an entry that moves meanwhile may be met
  // twice or not at all.
  template <class Look>
  void look_through(Look look) noexcept VIGIL_EXCLUDES(lock_) {
    for (intake& in : intakes_) {
      const lock_guard merging(lock_);
      const lock_guard adding(in.lock);
      for (std::uint32_t i = 0; i < in.size.load(); ++i)
        look(in.entries[i]);
    }
    for (std::size_t next = 0, size = 1; next < size;) {
      const lock_guard guard(lock_);
      size = heap_.size();
      for (const std::size_t end = std::min(size, next + slice); next < end; ++next)
        look(heap_[next]);
    }
  }

  void add_stats(runtime_stats& s) const noexcept;

 private:
  friend struct debug_layout;
  friend struct test_access;
  static constexpr std::size_t slice = 256;  // entries looked at under one hold of the lock

  std::uint64_t counted(timer_event event) const noexcept;
  static void note_arming(const intake& in, nanos before, nanos deadline) noexcept;
  void make_room(intake& in) VIGIL_EXCLUDES(lock_);
  void lower_next_deadline(nanos key, bool parking) noexcept;
  void merge(intake& in) noexcept VIGIL_REQUIRES(lock_);
  void drain() noexcept VIGIL_REQUIRES(lock_);
  void publish() noexcept VIGIL_REQUIRES(lock_);
  bool is_in_force(std::size_t index) noexcept VIGIL_REQUIRES(lock_);
  void sweep(std::size_t budget) noexcept VIGIL_REQUIRES(lock_);
  bool has_too_many_dead() const noexcept VIGIL_REQUIRES(lock_);

  const clock_source& clock_;
  timer_board& board_;
  const timer_owner& owner_;
  // Equal keys are ordered by the number of the arming (timer_order::as_armed), on
  // virtual time otherwise by what the seed draws for that number.
  const bool as_armed_;
  const bool has_ties_;
  const std::uint64_t tie_seed_;
  atomic<std::uint64_t> armings_{0};
  spinlock lock_{lock_rank::timer_heap};
  timer_heap heap_ VIGIL_GUARDED_BY(lock_);
  std::size_t taken_ VIGIL_GUARDED_BY(lock_) = 0;
  std::size_t granted_ VIGIL_GUARDED_BY(lock_) = 0;
  std::size_t sweep_at_ VIGIL_GUARDED_BY(lock_) = 0;
  atomic<std::size_t> size_{0};  // heap_.size(), for statistics
  std::vector<intake> intakes_;  // one for each worker, and the shared one
};

}  // namespace VIGIL_DETAIL
