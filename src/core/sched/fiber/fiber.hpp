// The control block of a fiber. It lies at the top of the fiber's stack, so that a parked
// fiber takes up one page.
//
//            go, spawn              enter                park
//   (made) ───────────▶ runnable ─────────▶ running ─────────────▶ parked
//                          ▲  ▲                │ yield                │
//                          │  └────────────────┘        ready         │
//                          └──────────────────────────────────────────┘
//   running ── the body returned, off its stack ──▶ ended
//
// The block belongs to the fiber itself and, while the fiber is off its stack, to the
// worker that switched away from it. Other threads touch only the atomics, the waiter,
// and `joining` under its lock. The dump reads everything, racing: it prints a snapshot
// and follows no pointer out of a control block.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/nanos.hpp"
#include "core/base/spinlock.hpp"
#include "core/machine/stack.hpp"
#include "core/machine/switch.hpp"
#include "core/sched/record/fiber_identity.hpp"
#include "core/sched/wait/wait_reason.hpp"
#include "core/sched/wait/waiter.hpp"

#include <vigil/detail/fiber_core.hpp>
#include <vigil/detail/shared_call.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

namespace VIGIL_DETAIL {

class queue_delays;
class scheduler;
class worker;

enum class fiber_state : std::uint8_t {
  made,      // has a stack and a body; nobody runs it; not in the registry
  runnable,  // in a queue; owned by the queue
  running,   // on a worker
  parked,    // off its stack; the thread that claims its waiter makes it runnable
  ended,     // the body is done; the stack stays until the handle is gone
};

constexpr const char* to_string(fiber_state state) noexcept {
  switch (state) {
    case fiber_state::made:
      return "made";
    case fiber_state::runnable:
      return "runnable";
    case fiber_state::running:
      return "running";
    case fiber_state::parked:
      return "parked";
    case fiber_state::ended:
      return "ended";
  }
  return "?";
}

// The handshake between park and ready (see park.hpp).
enum class park_word : std::uint8_t { running, parked, notified };

// Runners and the timer fiber are ours, the system fibers: they are not stopped, not part
// of a deadlock, and not counted as alive, except a runner during its turn.
enum class fiber_role : std::uint8_t { user, main, runner, timer };

// Decides which side sees to the fiber's result or exception.
enum class handle_state : std::uint8_t { held, detached, ended };

struct fiber_local_slot {
  const void* key;
  void* value;
  void (*destroy)(void*) noexcept;
  fiber_local_slot* next;
};

class timer_record;

// A fiber's present wait. Others decide by it: the end of a run, and the search for stuck
// fibers. Written by the fiber before it leaves its worker: a reader that has acquired
// `state` finds this wait, any other reader some wait of the fiber's.
struct present_wait {
  atomic<wait_reason> reason{wait_reason::none};
  atomic<const void*> object{nullptr};      // awaited::object
  atomic<const birth*> ends_with{nullptr};  // of the context that ends it as well
  atomic<nanos> until{never};
  atomic<nanos> since{0};  // for the dump alone: nothing hangs on it
};

// Whether park_check has looked at the call under way: only while it is to look at each
// (late_call).
enum class call_check : std::uint8_t { none, open, done };

// How many guards of this_fiber are in force. Only the fiber itself touches them once it
// has started.
struct fiber_guards {
  std::uint16_t shields = 0;
  std::uint16_t no_parks = 0;
  std::uint16_t pins = 0;
  std::uint16_t relocks = 0;  // condition_variable takes a lock back, which must succeed
  std::uint32_t ended = 0;    // callbacks whose guards were ended: guard_owner::callback
  call_check call = call_check::none;
};

using unhandled_box = call_box<void(std::exception_ptr)>;  // of options::on_unhandled

// How a fiber's function has ended. Written by the fiber before fiber_life::has_ended,
// which publishes it; then it belongs to the handle.
struct fiber_ending {
  std::exception_ptr error;
  // The runtime's, so it lasts as long as the run. With an `error`, which may be reported
  // later, the fiber has a reference of its own.
  unhandled_box* on_unhandled = nullptr;
  bool by_stop = false;
  bool by_shutdown = false;  // if by_stop: by `cancelled` of the root context, before any stop
};

// The caller that is inside join(). The lock guards it: `is_joined` is set under the
// lock, and read without it once the fiber has ended.
struct fiber_joining {
  spinlock lock{lock_rank::fiber_join};
  atomic<bool> is_joined{false};
  open_wait* joiner VIGIL_GUARDED_BY(lock) = nullptr;
};

// How long the fiber and its control block are needed. The fiber's end and its handle
// decide it, on any thread, through these atomics alone.
struct fiber_life {
  atomic<bool> has_ended{false};
  atomic<handle_state> handle{handle_state::held};
  atomic<std::uint8_t> owners{1};  // the run, and the handle if any
};

// The stack that a fiber runs on. Written before it starts.
struct fiber_stack {
  explicit fiber_stack(const stack& where) noexcept : whole(where) {}

  stack whole;
  std::size_t charge = 0;    // what it counts for against options::max_stack_bytes
  bool is_measured = false;  // by stack_sampler
};

// The callback that a runner is in.
struct fiber_callback {
  atomic<const void*> timer{nullptr};  // nullptr: it is in none
  std::uint64_t after = 0;             // the last lift before that run (stop_waiters SW3)
};

class fiber_core {
 public:
  fiber_core(scheduler& owner,
             const stack& where,
             std::string_view given_name,
             const site& from) noexcept;
  ~fiber_core();
  fiber_core(const fiber_core&) = delete;
  fiber_core& operator=(const fiber_core&) = delete;

  static constexpr std::uint64_t live_magic = 0x766967696c206662;  // "vigil fb"

  void set_name(std::string_view text) noexcept;

  // Counts one owner less. True if it was the last: the caller disposes of the fiber.
  bool release() noexcept {
    // Pairs with the other owner's decrement: the last one sees all that was
    // written. A single owner's word changes no more, so it needs no decrement.
    return life.owners.load(order::acquire) == 1 || life.owners.fetch_sub(1, order::acq_rel) == 1;
  }

  // Destroys the values of fiber_local, in the reverse order of first use.
  void destroy_locals() noexcept;

  // Called off its stack, by the worker that it has left.
  void has_left(fiber_state now) noexcept {
    state.store(now, order::release);  // Pairs with the acquire in take_view().
  }

  // Called when a callback is over: ends the guards that it has left behind.
  void end_guards() noexcept;

  // The first word of the block, by which the dump recognises one.
  atomic<std::uint64_t> magic{0};

  // --- what a worker touches at each switch
  fiber_side side;
  // How often it was switched to, from a number that the last fiber on this stack most
  // likely has not come to (scheduler::make_fiber). A reader of its stack looks at this
  // before and after: a worker counts first and touches the stack then.
  atomic<std::uint32_t> runs{0};
  atomic<park_word> park_state{park_word::running};
  atomic<fiber_state> state{fiber_state::made};
  fiber_role role = fiber_role::user;
  bool starts_for_events = false;  // each fiber it starts is as if an event had readied it
  bool has_run = false;            // its first instruction has run
  nanos queued_at = 0;             // if it is one of those that are timed: when it became ready
  worker* pinned = nullptr;        // the only worker that may run it
  fiber_core* next = nullptr;      // in a chain of ready fibers

  // --- waiting
  waiter own_waiter{*this};
  present_wait present;

  // --- stopping
  atomic<bool> stop_flag{false};  // request_stop(); never taken back
  std::uint16_t stops_thrown = 0;
  fiber_guards guards;
  timer_record* deferred = nullptr;  // they run once it gives up its worker; of the timer layer

  // --- what it runs
  scheduler* sched;
  const body_table* table = nullptr;
  void* body = nullptr;
  fiber_callback callback;
  fiber_ending ending;
  fiber_local_slot* locals = nullptr;

  // --- the handle
  fiber_joining joining;
  fiber_life life;

  // --- rarely touched
  queue_delays* timed_by = nullptr;  // the one that has set queued_at

  // --- its identity and its place
  fiber_identity identity;
  list_hook<fiber_core> registered;
  fiber_stack own_stack;
};

using fiber_chain = chain<fiber, &fiber::next>;
using fiber_list = list<fiber, &fiber::registered>;

// Where a control block lies. Stacks are a multiple of 64 KiB apart, so blocks right at
// the top would all fall into the same few cache sets. So each block is moved down by one
// of 16 colours, at most 960 bytes: the block and shallow frames still share the topmost
// page.
struct block_places {
  static constexpr std::size_t room = (sizeof(fiber) + 63) / 64 * 64;
  static constexpr unsigned number_shift = 14;  // of the top's address
  static constexpr std::uint32_t factor = 2654435769u;
  static constexpr unsigned colour_shift = 28;
  static constexpr std::size_t step = 64;
};

// Returns the place of a stack's control block.
inline fiber* control_block(const stack& s) noexcept {
  using at = block_places;
  const auto top = reinterpret_cast<std::uintptr_t>(s.top);
  const auto number = static_cast<std::uint32_t>(top >> at::number_shift);
  const std::size_t colour = (number * at::factor) >> at::colour_shift;
  return reinterpret_cast<fiber*>(s.top - at::room - colour * at::step);
}

// Prefetches what a switch to the fiber touches first: the control block, and the frames
// right below it. It helps with a fiber that has been out of the cache for long: each
// line is a miss, and the first one costs a walk of the page tables as well.
inline void prefetch(const fiber& f) noexcept {
  constexpr std::ptrdiff_t line = 64;
  constexpr std::ptrdiff_t frames = 8 * line;
  const auto* const block = reinterpret_cast<const std::byte*>(&f);
  for (std::ptrdiff_t at = -frames; at < std::ptrdiff_t{sizeof(fiber)}; at += line)
    __builtin_prefetch(block + at, 1);
}

}  // namespace VIGIL_DETAIL
