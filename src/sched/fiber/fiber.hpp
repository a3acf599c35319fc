// The control block of a fiber. It lives at the top of the fiber's stack, so
// that a parked fiber touches one page.
//
//            go, spawn              enter                park
//   (made) ───────────▶ runnable ─────────▶ running ─────────────▶ parked
//                          ▲  ▲                │ yield                │
//                          │  └────────────────┘        ready         │
//                          └──────────────────────────────────────────┘
//   running ── the body returned, off its stack ──▶ ended
//
// Who may touch what: the fiber itself and, while it is off its stack, the
// worker that switched away from it; others only through the atomics here,
// the waiter, and what join_lock guards. The dump reads everything, racing: it
// prints a snapshot and follows no pointer out of a control block.
#pragma once

#include "base/atomic.hpp"
#include "base/intrusive_list.hpp"
#include "base/nanos.hpp"
#include "base/spinlock.hpp"
#include "machine/stack.hpp"
#include "machine/switch.hpp"
#include "sched/wait/wait_reason.hpp"
#include "sched/wait/waiter.hpp"

#include <vigil/detail/fiber_core.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

namespace vigil::inline VIGIL_ABI::detail {

class scheduler;
class worker;

enum class fiber_state : std::uint8_t {
  made,      // has a stack and a body; nobody runs it; not in the registry
  runnable,  // in a queue; owned by the queue
  running,   // on a worker
  parked,    // off its stack; whoever claims its waiter makes it runnable
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

// System fibers are ours: not counted as alive, not stopped, not part of a
// deadlock.
enum class fiber_role : std::uint8_t { user, main, runner, timer };

// Who will look at an exception that left the fiber.
enum class handle_state : std::uint8_t { held, detached, ended };

struct fiber_local_slot {
  const void* key;
  void* value;
  void (*destroy)(void*) noexcept;
  fiber_local_slot* next;
};

class timer_record;

class fiber_core {
 public:
  fiber_core(detail::scheduler& owner,
             const detail::stack& where,
             std::string_view given_name,
             const site& from) noexcept;
  ~fiber_core();
  fiber_core(const fiber_core&) = delete;
  fiber_core& operator=(const fiber_core&) = delete;

  static constexpr std::size_t name_room = 32;
  static constexpr std::uint64_t live_magic = 0x766967696c206662;  // "vigil fb"

  void set_name(std::string_view text) noexcept;

  // One owner less. True if it was the last: the caller disposes of the fiber.
  bool drop_owner() noexcept {
    // Pairs with the other owner's decrement: the last one sees all that was
    // written. A single owner's word changes no more, so it needs no decrement.
    return owners.load(detail::acquire) == 1 || owners.fetch_sub(1, detail::acq_rel) == 1;
  }

  // The values of fiber_local, in the reverse order of first use.
  void destroy_locals() noexcept;

  // A callback is over: what it has left behind is no longer in force.
  void end_guards() noexcept;

  // The first word, so that the dump recognises a control block.
  detail::atomic<std::uint64_t> magic{0};

  // --- what a worker touches at each switch
  detail::fiber_side side;
  detail::atomic<detail::park_word> park_state{detail::park_word::running};
  detail::atomic<detail::fiber_state> state{detail::fiber_state::made};
  detail::fiber_role role = detail::fiber_role::user;
  // Whether it may run beside a pinned fiber that waits: worker::take_short_turn.
  std::uint8_t short_turns = 0;  // of late, in a row
  bool on_trial = false;         // its present or next turn is timed
  bool has_run = false;
  bool waits_cancellable = false;    // a node: its wait may end at any moment
  bool waits_timed = false;          // if pinned: for a timer's channel
  bool waits_open = false;           // if pinned: worker::note_pinned_wait
  detail::worker* pinned = nullptr;  // the only worker that may run it
  fiber_core* next = nullptr;        // in a chain of ready fibers

  // --- waiting
  detail::waiter self{*this};
  detail::atomic<detail::wait_reason> reason{detail::wait_reason::none};
  detail::atomic<detail::nanos> waiting_since{0};
  detail::atomic<detail::nanos> waiting_until{detail::never};

  // --- stopping
  detail::atomic<bool> stop_flag{false};  // request_stop(); never taken back
  std::uint16_t shields = 0;
  std::uint16_t no_parks = 0;
  std::uint16_t pins = 0;
  std::uint16_t stops_thrown = 0;
  std::uint16_t relocks = 0;         // it takes a lock back that it has to have
  std::uint32_t guards_ended = 0;    // guard_owner::callback
  timer_record* deferred = nullptr;  // functions that wait for its next park; of the timer layer

  // --- what it runs
  detail::scheduler* sched;
  const body_table* table = nullptr;
  void* body = nullptr;
  detail::atomic<const void*> callback{nullptr};  // a runner: the timer whose callback it is in
  std::exception_ptr error;
  void (*on_unhandled)(std::exception_ptr) = nullptr;
  bool ended_by_stop = false;
  bool slow_named = false;         // slow_fibers has named it
  bool ended_by_shutdown = false;  // by `cancelled`, of the root context: no stop yet
  detail::fiber_local_slot* locals = nullptr;

  // --- the handle
  detail::spinlock join_lock{detail::lock_rank::fiber_join};
  detail::open_wait joiner VIGIL_GUARDED_BY(join_lock);
  detail::atomic<bool> is_joined{false};  // somebody is inside join()
  detail::atomic<bool> has_ended{false};
  detail::atomic<detail::handle_state> handle{detail::handle_state::held};
  detail::atomic<std::uint8_t> owners{1};  // the run, and the handle if any

  // --- who it is
  std::uint64_t id = 0;
  detail::list_hook<fiber_core> registered;
  detail::stack whole;
  std::size_t stack_charge = 0;  // what it counts for against options::max_stack_bytes
  const char* file;
  std::uint32_t line;
  char name[name_room];
};

using fiber_chain = chain<fiber, &fiber::next>;
using fiber_list = list<fiber, &fiber::registered>;

// Where the control block of a stack is. Stacks are a multiple of 64 KiB apart,
// so blocks right at the top would all fall into the same few cache sets: each
// stack's is moved down by one of 16 colours, at most 960 bytes, so that block
// and shallow frames still share the topmost page.
inline fiber* control_block(const stack& s) noexcept {
  constexpr std::size_t room = (sizeof(fiber) + 63) / 64 * 64;
  const auto number = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(s.top) >> 14);
  const std::size_t colour = (number * 2654435769u) >> 28;
  return reinterpret_cast<fiber*>(s.top - room - colour * 64);
}

// Asks for what a switch to the fiber touches first: the control block, and the
// frames right below it. For a fiber that has been out of the cache for long:
// the way to a stack's page is a walk of the page tables, then line after line.
inline void prefetch(const fiber& f) noexcept {
  constexpr std::ptrdiff_t line = 64;
  constexpr std::ptrdiff_t frames = 8 * line;
  const auto* const block = reinterpret_cast<const std::byte*>(&f);
  for (std::ptrdiff_t at = -frames; at < std::ptrdiff_t{sizeof(fiber)}; at += line)
    __builtin_prefetch(block + at, 1);
}

}  // namespace vigil::inline VIGIL_ABI::detail
