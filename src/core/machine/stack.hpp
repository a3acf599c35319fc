// Stacks of fibers: where they come from and how they are found again.
//
// A stack is carved from a slab, a big mapping of up to 64 stacks of one size
// class (a power of two from 16 KiB to 1 GiB). Below each stack lie 272 KiB
// of guard; a fiber that runs over the end of its stack faults there. Code built with
// -fstack-clash-protection always does; without it a frame larger than the guard may
// step over it. A buffer of 256 KiB in a frame with room for its tail does not.
//
// allocate_stack() and release_stack() are for any thread and take the pool's
// own mutex, which is never held across user code and never in a signal
// handler. stack_cache is the fast way for a worker. find_stack(),
// for_each_stack_in_use() and slab_hold are async-signal-safe.
#pragma once

#include "core/base/nanos.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>

namespace VIGIL_DETAIL {

inline constexpr std::size_t default_stack_size = 128 * 1024;
inline constexpr std::size_t stack_guard_size = 272 * 1024;
inline constexpr std::size_t min_stack_size = 16 * 1024;
inline constexpr std::size_t max_stack_size = std::size_t{1} << 30;

// The usable bytes are [bottom, top); the guard lies below bottom. Empty after
// default construction.
struct stack {
  std::byte* bottom = nullptr;
  std::byte* top = nullptr;
  // The slab's record and the place in it. Only this layer reads it.
  std::uintptr_t home = 0;

  std::size_t size() const noexcept { return static_cast<std::size_t>(top - bottom); }

  explicit operator bool() const noexcept { return bottom != nullptr; }
};

// Thrown if no stack can be had. what() says what was tried, which limit was hit and what
// to do about it; code() is the errno of the failed call.
class stack_error : public std::system_error {
 public:
  stack_error(int error, const std::string& text);
};

// Allocates a stack of at least `usable` bytes, rounded up to a size class. Its memory is
// zero or what an earlier fiber left there.
//
// Throws std::invalid_argument for a size outside [min_stack_size,
// max_stack_size] and stack_error if none can be had; then nothing is lost and
// a later release makes room again.
[[nodiscard]] stack allocate_stack(std::size_t usable);

// caller  nothing runs on the stack any more, and none of its bytes is read
//         again through it, except by a visitor under a slab_hold.
void release_stack(stack released) noexcept;

// Gives back what is kept for reuse: the hot stacks and empty slabs of the
// pool, not those in a stack_cache. For shutdown and for leak checks.
void trim_stacks() noexcept;

// While one exists, so many idle stacks may stay warm: they keep their memory for some
// seconds (stack_decay.hpp). The numbers of several add up. The end of each gives back
// all that is warm. There is one for each run.
class warm_stacks {
 public:
  explicit warm_stacks(std::size_t most) noexcept;
  ~warm_stacks();
  warm_stacks(const warm_stacks&) = delete;
  warm_stacks& operator=(const warm_stacks&) = delete;

 private:
  const std::size_t most_;
};

// Gives back the memory of stacks that have been warm for long enough, one slab's at
// most. False if more is due. Most often nothing is: then it reads a word.
bool decay_stacks() noexcept;

// Whether a step of the decay is to come, and nobody wakes for it.
bool decay_wants_attendant() noexcept;

// For a thread that goes to sleep and wakes for the next step of the decay. One in the
// process does: when() is never if there is no step, or another thread wakes for it.
class decay_attendant {
 public:
  decay_attendant() noexcept;
  ~decay_attendant();
  decay_attendant(const decay_attendant&) = delete;
  decay_attendant& operator=(const decay_attendant&) = delete;

  nanos when() const noexcept { return when_; }

 private:
  nanos when_;
};

// A worker's few hot stacks of the default size; other sizes pass through to the pool.
// Used on the owner's thread only.
class stack_cache {
 public:
  stack_cache() noexcept = default;
  stack_cache(const stack_cache&) = delete;
  stack_cache& operator=(const stack_cache&) = delete;

  ~stack_cache() { flush(); }

  // As allocate_stack() and release_stack().
  [[nodiscard]] stack take(std::size_t usable);
  void give(stack released) noexcept;

  // Hands everything back to the pool.
  void flush() noexcept;

 private:
  static constexpr std::size_t capacity = 128;
  // The number of stacks that go to or come from the pool together: its lock is
  // taken for each batch.
  static constexpr std::size_t batch = 16;

  bool refill() noexcept;
  void hand_back(std::size_t leaving) noexcept;

  std::size_t count_ = 0;
  stack hot_[capacity];  // the hottest last
};

struct stack_stats {
  std::size_t in_use = 0;        // stacks handed out; cached ones do not count
  std::size_t slabs = 0;         // mapped now
  std::size_t mapped_bytes = 0;  // their address space, guards included
};

// Counts by walking the table. Async-signal-safe.
VIGIL_FOR_IO stack_stats read_stack_stats() noexcept;

struct stack_place {
  stack where;
  bool in_use = false;
  bool in_guard = false;  // the address lies in the guard below where.bottom
};

// Finds the stack, or the guard of a stack, that `address` points into. False for all
// other memory. Async-signal-safe; linear in the number of slabs.
VIGIL_FOR_IO bool find_stack(const void* address, stack_place& out) noexcept;

// While one exists, no slab is unmapped. Async-signal-safe, nests, any thread.
class slab_hold {
 public:
  VIGIL_FOR_IO slab_hold() noexcept;
  VIGIL_FOR_IO ~slab_hold();
  slab_hold(const slab_hold&) = delete;
  slab_hold& operator=(const slab_hold&) = delete;
};

using stack_visitor = void (*)(const stack&, void* argument) noexcept;

// Visits each stack in use. Lock-free and async-signal-safe.
//
// caller  holds a slab_hold. A stack taken or released during the walk may or
//         may not be seen. A visited stack may be so fresh that its owner has
//         written nothing yet, or be released under the visitor's eyes: its
//         bytes stay readable, but the visitor must check what they say.
VIGIL_FOR_IO void for_each_stack_in_use(stack_visitor visit, void* argument) noexcept;

}  // namespace VIGIL_DETAIL
