// group_core: the fibers of a group, the waits for them, and the first error.
//
// Everything is under one lock. A place is taken before a fiber is made and given
// back when its function has died, or has never run. So while a place is taken the
// group lives, and when none is, nothing touches it any more.
//
// GR1 A running fiber is in the list from its first step to its last, and leaves
//     it under the lock: a stop that is asked for under the lock finds it alive.
// GR2 The unlock in give() is its last touch: a thread that sees no place taken, under
//     the lock, may destroy the group.
// GR3 With a limit, a place that is given back is handed to the first wait for one.
// GR4 In the list the fibers that have not been asked to stop come before those that
//     have. Once the asking has begun, each fiber that comes in has been asked. So a
//     few can be asked under each hold of the lock.
// GR5 A wait for the end that was readied looks again under the lock: more fibers may
//     have been started before it runs. wait() sees no place taken and forbids more
//     under one hold of the lock. A select cannot look again: the thread that claims one
//     forbids more.
#pragma once

#include "core/base/intrusive_list.hpp"
#include "core/base/lock_rank.hpp"
#include "core/base/spinlock.hpp"
#include "core/base/thread_annotations.hpp"
#include "core/sched/wait/case_table.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/sched/wait/wake_list.hpp"

#include <vigil/context.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/group_core.hpp>

#include <cstddef>
#include <exception>
#include <limits>
#include <utility>

namespace VIGIL_DETAIL {

class group_core {
 public:
  using waiting_list = list<queued_waiter, &queued_waiter::hook>;

  // The cases of a select.
  template <class Case, waiting_list group_core::*queue>
  struct any_case;
  struct end_case;
  struct next_case;
  struct ended_case;

  group_core(cancellable c, std::size_t limit, const site& from)
      : made_at_(from),
        made_(std::move(c)),
        limit_(limit == 0 ? std::numeric_limits<std::size_t>::max() : limit) {}

  bool take(const char* call);
  bool try_take(const char* call);
  void give() noexcept;
  void run(call_ref f) noexcept;
  // True if all have ended; with `last`, nothing starts in the group any more.
  bool wait(const wait_limit& limit, const char* call, bool last);
  bool runs(const fiber* f) noexcept;
  void join() noexcept;
  void finish();
  void cancel(const std::exception_ptr& cause) noexcept;
  [[noreturn]] void throw_unfinished() const;
  void hand_in(done_result& r) noexcept;
  void finish_results(bool is_whole);

  const context& ctx() const noexcept { return made_.ctx; }

 private:
  bool take_now(const char* call);
  bool wait_now(const wait_limit& limit, const char* call, bool last);

  struct member {
    fiber* self;
    bool is_asked = false;  // to stop
    list_hook<member> hook;
  };

  static constexpr unsigned asked_at_once = 64;  // under one hold of the lock

  bool lock_to_start(const char* call) VIGIL_TRY_ACQUIRE(true, lock_);
  bool ask_some_to_stop() noexcept;
  void fail(std::exception_ptr error) noexcept;
  void fail_unstarted() noexcept;
  bool is_by_cancel(const cancelled& e) noexcept;
  bool give_to_next(wake_list& claimed) noexcept VIGIL_REQUIRES(lock_);

  const birth made_at_;
  const cancellable made_;
  const std::size_t limit_;
  spinlock lock_{lock_rank::fiber_join};
  std::size_t taken_ VIGIL_GUARDED_BY(lock_) = 0;
  bool asked_to_stop_ VIGIL_GUARDED_BY(lock_) = false;
  bool ended_by_cancel_ VIGIL_GUARDED_BY(lock_) = false;  // not by an error or its parent
  bool waited_for_ VIGIL_GUARDED_BY(lock_) = false;
  std::exception_ptr error_ VIGIL_GUARDED_BY(lock_);
  list<member, &member::hook> running_ VIGIL_GUARDED_BY(lock_);
  waiting_list for_place_ VIGIL_GUARDED_BY(lock_);
  waiting_list for_end_ VIGIL_GUARDED_BY(lock_);
  waiting_list selects_for_end_ VIGIL_GUARDED_BY(lock_);
  chain<done_result, &done_result::next_done> done_ VIGIL_GUARDED_BY(lock_);
  waiting_list for_result_ VIGIL_GUARDED_BY(lock_);
};

extern const case_table ended_case_table;

}  // namespace VIGIL_DETAIL
