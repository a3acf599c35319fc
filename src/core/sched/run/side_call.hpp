// side_call: a function that a fiber has given to a thread of a side pool, as the
// fiber's runtime sees it. side_calls: those of one runtime.
//
// The danger. The function may return at the moment at which a timeout or a stop ends its
// caller's wait: the result would be lost, or handed to a fiber that has gone, or the
// record freed twice or never. And the runtime may end while the function still runs.
//
// The rule. The lock of the list of all calls decides which comes first: returned(), on
// the pool's thread, or leave(), on the caller, whose wait has ended otherwise. If the
// caller comes first and the function has not begun, leave() takes it out of the queue.
//
// SC1 A record has one owner at any time: its caller until it is submitted, after `done`
//     and after leave() has withdrawn it; the pool otherwise.
// SC2 A call is outside work, and one of under_way_, from begin() to over(), which is
//     the last touch of the scheduler. The end of the run waits for the count, so the
//     scheduler outlives every call.
// SC3 On virtual time a function that has returned stays in the list, and its caller
//     parked, until nothing else can run and every other function has returned as well.
//     Then all are taken in at once, in the order in which they began, and the seed
//     draws which caller goes first.
// SC4 A caller that leaves touches the pool under the lock only, and only if the function
//     has not returned: then the pool still has the call, and waits for it before it
//     goes. Once the function has returned, the pool may be gone.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/nanos.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/record/fiber_identity.hpp"
#include "core/sched/wait/waiter.hpp"

#include <vigil/detail/site.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class dump_writer;
class scheduler;

// The fate of a call that its caller leaves, and so the owner of its record.
enum class call_fate : std::uint8_t {
  over,       // the function has returned: the caller
  withdrawn,  // the function never begins: the caller
  left,       // the function runs: the pool
};

class side_call {
 public:
  // Takes the call out of its pool's queue; false if a thread has taken it already.
  // Caller: side_calls::leave().
  virtual bool withdraw() noexcept = 0;

  list_hook<side_call> hook;
  open_wait waits;    // until the call is left
  bool left = false;  // nobody waits any more
  bool done = false;  // the function has returned

  // For dumps: the kernel's number of the thread that runs the function.
  static constexpr int not_begun = 0;
  static constexpr int has_returned = -1;
  atomic<int> thread{not_begun};

  // Name the call in messages about what the runtime waits for.
  nanos since = 0;  // on the monotonic clock
  fiber_identity by;
  site from{"", 0};

 protected:
  ~side_call() = default;
};

class side_calls {
 public:
  explicit side_calls(scheduler& of) noexcept : sched_(of) {}

  void begin(side_call& c) noexcept VIGIL_EXCLUDES(lock_);
  // Caller: the pool's thread. True if nobody waits any more: then the record is the
  // thread's, which calls over().
  bool returned(side_call& c) noexcept VIGIL_EXCLUDES(lock_);
  // Caller: the fiber, whose wait has ended without the function's return.
  call_fate leave(side_call& c) noexcept VIGIL_EXCLUDES(lock_);
  // Counts a call out (SC2).
  void over() noexcept;

  std::size_t under_way() const noexcept { return under_way_.load(); }

  // Called before the scheduler goes: a call that was left at the very end of the run, on
  // a pool that others share, may still be under way.
  void wait_until_over() const noexcept;

  // --- virtual time: SC3
  bool all_done() noexcept VIGIL_EXCLUDES(lock_);
  // Caller: the one worker, on its own stack, so no fiber runs meanwhile. False if a
  // function still runs.
  bool take_in() noexcept VIGIL_EXCLUDES(lock_);

  // Writes which functions have not returned: a line each for the first 64, and the
  // number of the rest.
  void write(dump_writer& out) noexcept VIGIL_EXCLUDES(lock_);

 private:
  using call_list = list<side_call, &side_call::hook>;

  scheduler& sched_;

  spinlock lock_{lock_rank::side_calls};
  call_list calls_ VIGIL_GUARDED_BY(lock_);
  atomic<std::size_t> under_way_{0};
};

}  // namespace VIGIL_DETAIL
