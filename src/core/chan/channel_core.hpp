// channel_core: a channel without its type, and its queues of waits.
//
//   senders ──▶ [ ring of `capacity` slots ] ──▶ receivers
//
// Everything is guarded by the channel's lock. A value moves under it, straight from the
// sender's hand into the receiver's when one of them waits.
//
// A wait leaves a queued_case in a queue, or several at once (select), all with the
// ticket of one waiter. The other side finds one, claims the ticket, which says how the
// wait ended, moves the value, unlocks, and delivers.
//
// CH1 A case is linked and unlinked under the lock of its channel. Its owner leaves no
//     case behind: it unlinks by itself those that were not claimed, even when an
//     exception ends the wait.
// CH2 A claim fails if the wait has ended otherwise; the thread that failed unlinks the
//     case and looks at the next one.
// CH3 Between claim and deliver() the owner cannot go on, so its case and its value stay
//     where they are.
// CH4 Receivers wait only if the ring is empty, senders only if it is full; none waits on
//     a closed channel. So at most one of the queues holds cases that can be claimed,
//     except for one select that waits on both: it never meets itself, because it looks
//     before it is queued.
// CH5 A waiter has a handle of the channel, so the channel lives until the case is
//     unlinked, whatever becomes of the handles outside.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/call/last_users.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/wait/waiter.hpp"

#include <vigil/detail/channel_core.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

using channel_core = channel_core;
using vigil::channel_status;

struct queued_case : queued_waiter {
  void* value = nullptr;  // to move from, or room to move into

  // Caller: the owner, whose wait the channel has ended.
  channel_status ended_with() const noexcept {
    return whose->outcome() == outcome::closed ? channel_status::closed : channel_status::ok;
  }
};

enum class direction : std::uint8_t { send, recv };

using case_queue = far_list<queued_case>;

// The source of the values of a timer's channel, instead of senders: each look at the
// channel asks it whether a value is due.
class timed_source {
 public:
  // --- under the channel's lock
  // Constructs the value that is due at `into`; false if none is due.
  virtual bool take(void* into) noexcept = 0;
  // Whether its runtime has ended: then nothing will come any more.
  virtual bool has_ended() const noexcept = 0;
  // Called when the first receiver is about to be queued. Throws std::bad_alloc, and
  // runtime_gone if has_ended().
  virtual void somebody_waits() = 0;
  // Called when no receiver is queued any more.
  virtual void nobody_waits() noexcept = 0;

  // --- without it
  // Whether nothing is due for some milliseconds: cheaper than a look, and a hint.
  virtual bool is_far() const noexcept = 0;

 protected:
  ~timed_source() = default;
};

struct attempt {
  channel_status status;
  waiter* peer = nullptr;  // to be delivered once the lock is released
};

// Waits where nothing can come: on a nil channel, in a select without cases.
channel_status wait_on_nothing(wait_reason reason, const wait_limit& limit);

class channel_core {
 public:
  // Throws std::length_error, std::bad_alloc.
  channel_core(const element_ops& operations, std::size_t capacity, const site& from);

  channel_core(const channel_core&) = delete;
  channel_core& operator=(const channel_core&) = delete;

  // --- the steps of an operation; caller: holds the lock
  // Acts at once or not at all: ok, closed or not_ready.
  attempt try_now(direction d, void* value) noexcept VIGIL_REQUIRES(lock) {
    return d == direction::send ? send_now(value) : recv_now(value);
  }

  // Queues a case whose value is set. False if the source has just ended: the channel is
  // closed now. Throws std::bad_alloc.
  bool enqueue(direction d, queued_case& c) VIGIL_REQUIRES(lock);
  // Unlinks a case if it is still queued.
  void dequeue(direction d, queued_case& c) noexcept VIGIL_REQUIRES(lock);

  // Closes the channel and ends all waits. False if it was closed already.
  bool close() noexcept VIGIL_EXCLUDES(lock);
  // Ends all waits, a few dozen under each hold of the lock. Caller: the channel is
  // closed, or its source has ended.
  void dismiss_all() noexcept VIGIL_EXCLUDES(lock);

  std::size_t size() const noexcept VIGIL_EXCLUDES(lock);

  std::size_t capacity() const noexcept { return capacity_; }

  struct state {
    std::size_t size;
    std::size_t capacity;
    bool is_closed;
  };

  // For those who look inside, at a copy of the bytes.
  VIGIL_NO_SANITIZE_UNDEFINED state state_in_copy() const noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
    return {size_, capacity_, (marks_ & closed) != 0};
  }

  VIGIL_NO_SANITIZE_UNDEFINED bool remembers_in_copy() const noexcept
      VIGIL_NO_THREAD_SAFETY_ANALYSIS {
    return (marks_ & remembers) != 0;
  }

  // Takes out the first receiver that can be claimed for a value, and claims it. Caller:
  // the timer's channel, holding the lock.
  queued_case* first_receiver() noexcept VIGIL_REQUIRES(lock) { return claim_first(receivers_); }

  bool has_receivers() const noexcept VIGIL_REQUIRES(lock) { return !receivers_.empty(); }

  mutable spinlock lock{lock_rank::channel};
  const element_ops& ops;
  const birth made_at;
  atomic<std::size_t> handles{1};
  timed_source* source = nullptr;  // set before any other thread has the channel

 protected:
  // The channel is a named_channel.
  void remember() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS { marks_ = remembers; }

  virtual ~channel_core();

 private:
  // The reasons why an operation has to look further: most look at this word alone.
  enum : std::uint8_t {
    closed = 1,
    remembers = 2,  // its users
    crowded = 4,    // senders may be queued
  };

  attempt send_now(void* value) noexcept VIGIL_REQUIRES(lock);
  attempt send_open(void* value) noexcept VIGIL_REQUIRES(lock);
  attempt send_noted(void* value) noexcept VIGIL_REQUIRES(lock);
  attempt recv_now(void* into) noexcept VIGIL_REQUIRES(lock);
  [[gnu::noinline]] attempt recv_empty(void* into) noexcept VIGIL_REQUIRES(lock);
  [[gnu::noinline]] attempt let_sender_in() noexcept VIGIL_REQUIRES(lock);
  attempt recv_noted(void* into) noexcept VIGIL_REQUIRES(lock);
  queued_case* first_sender() noexcept VIGIL_REQUIRES(lock);
  void note_recv(const waiter* sender) noexcept VIGIL_REQUIRES(lock);
  last_users& users() noexcept;
  friend void release(channel_core*) noexcept;
  friend struct debug_layout;
  friend struct object_view;

  // Called when the last handle is gone.
  virtual void end() noexcept { delete this; }

  // Takes cases out until one can be claimed for a value; nullptr if none can.
  static queued_case* claim_first(case_queue& queue) noexcept;
  std::byte* slot(std::size_t i) const noexcept VIGIL_REQUIRES(lock);

  const std::size_t capacity_;
  std::byte* ring_ = nullptr;
  std::size_t first_ VIGIL_GUARDED_BY(lock) = 0;
  std::size_t size_ VIGIL_GUARDED_BY(lock) = 0;
  std::uint8_t marks_ VIGIL_GUARDED_BY(lock) = 0;  // a sum of them
  case_queue receivers_ VIGIL_GUARDED_BY(lock);
  case_queue senders_ VIGIL_GUARDED_BY(lock);
};

// A channel with a name remembers its users.
class named_channel final : public channel_core {
 public:
  named_channel(const element_ops& operations, std::size_t capacity, const site& from)
      : channel_core(operations, capacity, from) {
    remember();
  }

  static constexpr std::size_t users_offset() noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
    return offsetof(named_channel, users);
#pragma GCC diagnostic pop
  }

  last_users users{this};
};

channel_status try_operate(channel_core* c, direction d, void* value) noexcept;

}  // namespace VIGIL_DETAIL
