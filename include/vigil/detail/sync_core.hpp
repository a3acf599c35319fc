// The parts of the types of sync.hpp: the words that their fast paths touch, and the
// functions for everything else.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <atomic>
#include <cstdint>

namespace VIGIL_DETAIL {

struct queued_wait;
class last_users;
struct core_access;  // wait_cases.hpp

// The waiters for one thing, first come, first served. src/core/sync/wait_queue.hpp.
struct wait_queue : birth {
  constexpr wait_queue(const site& from) noexcept : birth(from) {}

  std::atomic<bool> taken{false};  // its lock
  queued_wait* first = nullptr;
  queued_wait* last = nullptr;
};

// Locks are counted as the calls of src/core/sched/worker/turn_budget.hpp are, but a lock
// that finds its mutex free knows no fiber. So the unlocks count, and each so many leave
// the mutex `due`, free but for fast paths, for a lock that comes to the library and is
// counted for all. src/core/sync/lock_turns.hpp
inline constexpr int locks_until_due = 64;

struct mutex_core {
  constexpr explicit mutex_core(const site& from) noexcept : queue(from) {}

  static constexpr std::uint32_t locked = 1;
  static constexpr std::uint32_t due = 4;    // nobody holds it or waits
  static constexpr std::uint32_t fresh = 8;  // with due alone: no lock has been left out yet

  // 0 means free, with no waiters. src/core/sync/mutex.cpp has the other bits.
  std::atomic<std::uint32_t> word{due | fresh};
  int until_due = 0;  // in unlocks; the holder's
  wait_queue queue;
  // If holders are noted: twice the number of the fiber, or an odd number for a thread.
  std::atomic<std::uint64_t> holder{0};
};

// Why each lock comes to the library: 0 by default, otherwise `any` and a sum of the
// others (src/core/sync/lock_watch.hpp). No mutex ever has such a word, since one that is
// fresh is due. So a fast path that expects it, in place of 0, needs no other look.
struct lock_watch {
  static constexpr std::uint32_t any = mutex_core::fresh;
  static constexpr std::uint32_t notes_holders = 16;  // for those who look inside
  static constexpr std::uint32_t checks_calls = 32;   // vigil-lock-check
  static constexpr std::uint32_t virtual_run = 64;    // for each one that is under way
};

VIGIL_API extern std::atomic<std::uint32_t> locks_are_watched;

// The word that a fast path expects of a free mutex.
inline std::uint32_t free_lock_word() noexcept {
  // ordering: a setting.
  return locks_are_watched.load(std::memory_order_relaxed);
}

inline bool is_each_lock_watched() noexcept {
  return free_lock_word() != 0;
}

// Notes the caller, if holders are noted.
VIGIL_API void note_holder(std::atomic<std::uint64_t>& holder) noexcept;

inline void holder_came(std::atomic<std::uint64_t>& holder) noexcept {
  if (is_each_lock_watched()) [[unlikely]]
    note_holder(holder);
}

// Caller: about to unlock.
inline void holder_goes(std::atomic<std::uint64_t>& holder) noexcept {
  // ordering: only for those who look inside; nothing hangs on it.
  if (holder.load(std::memory_order_relaxed) != 0) [[unlikely]]
    holder.store(0, std::memory_order_relaxed);
}

// Returns true if the mutex is now locked, and its holder noted; false if the limit has
// come. A stop does not end the wait.
// Waits: throws wrong_place, deadlock (options::on_deadlock).
VIGIL_API bool lock_slowly(mutex_core& m, const wait_limit& limit);
// The same, without a wait.
VIGIL_API bool try_lock_slowly(mutex_core& m) noexcept;
// As part of a call that does not give its worker away unless it waits.
// Waits: throws wrong_place, deadlock (options::on_deadlock).
VIGIL_API void lock_uncounted(mutex_core& m);
VIGIL_API void unlock_slowly(mutex_core& m);

struct shared_mutex_core {
  constexpr explicit shared_mutex_core(const site& from) noexcept : queue(from) {}

  static constexpr std::uint32_t exclusive = 1;
  static constexpr std::uint32_t waiting = 2;
  static constexpr std::uint32_t due = mutex_core::due;
  static constexpr std::uint32_t fresh = mutex_core::fresh;
  static constexpr std::uint32_t one_reader = 16;

  std::atomic<std::uint32_t> word{due | fresh};
  // In unlocks, of readers as well. One that is lost, of two at a time, makes it late.
  std::atomic<int> until_due{0};
  wait_queue queue;  // the writers; its lock guards both
  queued_wait* first_reader = nullptr;
  queued_wait* last_reader = nullptr;
  std::atomic<std::uint64_t> holder{0};  // the writer, as for a mutex
};

// Waits: throws wrong_place, deadlock (options::on_deadlock).
VIGIL_API bool lock_slowly(shared_mutex_core& m, const wait_limit& limit);
VIGIL_API void unlock_slowly(shared_mutex_core& m);
// Waits: throws wrong_place, deadlock (options::on_deadlock).
VIGIL_API bool lock_shared_slowly(shared_mutex_core& m, const wait_limit& limit);
VIGIL_API bool try_lock_slowly(shared_mutex_core& m) noexcept;
VIGIL_API bool try_lock_shared_slowly(shared_mutex_core& m) noexcept;
VIGIL_API void unlock_shared_slowly(shared_mutex_core& m);

struct condition_core {
  constexpr explicit condition_core(const site& from) noexcept : queue(from) {}

  wait_queue queue;
};

// The caller's lock, with its type erased.
struct any_lock {
  void* lock;
  void (*unlock)(void* lock);
  void (*relock)(void* lock) noexcept;
};

// Returns true if notified, false if the limit has come. The lock is held afterwards,
// even if this throws.
// Waits: throws stopped, wrong_place.
VIGIL_API bool wait(condition_core& c, const any_lock& lock, const wait_limit& limit);
VIGIL_API void notify_one(condition_core& c) noexcept;
VIGIL_API void notify_all(condition_core& c) noexcept;

// Throws std::invalid_argument.
[[noreturn]] VIGIL_API void throw_negative(const char* name, std::int64_t n);

constexpr void refuse_negative(const char* name, std::int64_t n) {
  if (n < 0) throw_negative(name, n);
}

// The count of a wait_group, a latch or a semaphore.
struct counter_core {
  constexpr explicit counter_core(const site& from) noexcept : queue(from) {}

  mutable wait_queue queue;  // its lock guards the count
  std::int64_t count = 0;
};

VIGIL_API void add_to(counter_core& c, std::int64_t n);      // wait_group
VIGIL_API void count_down(counter_core& c, std::int64_t n);  // latch
VIGIL_API std::int64_t count_of(const counter_core& c) noexcept;
// Returns true if the count is or was zero during the wait, false if the limit has come.
// Waits: throws stopped, wrong_place.
VIGIL_API bool wait(counter_core& c, bool is_latch, const wait_limit& limit);

// A semaphore. One with a name remembers its users, and then the sign bit of the count is
// set: every request exceeds such a count. So a request that is granted at once needs no
// other look.
struct permit_core : counter_core {
  using counter_core::counter_core;

  last_users* users = nullptr;
};

// Without memory they are not remembered.
VIGIL_API void remember_users(permit_core& s) noexcept;
VIGIL_API void forget_users(permit_core& s) noexcept;
VIGIL_API std::int64_t permits_of(const permit_core& s) noexcept;
// Waits: throws stopped, wrong_place, std::invalid_argument.
VIGIL_API bool acquire_permits(permit_core& s, std::int64_t n, const wait_limit& limit);
VIGIL_API bool try_acquire_permits(permit_core& s, std::int64_t n);
VIGIL_API void release_permits(permit_core& s, std::int64_t n);

struct once_core {
  constexpr explicit once_core(const site& from) noexcept : queue(from) {}

  static constexpr std::uint8_t idle = 0;
  static constexpr std::uint8_t running = 1;
  static constexpr std::uint8_t done = 2;

  std::atomic<std::uint8_t> state{idle};
  wait_queue queue;          // its lock guards what follows, and changes of the state
  std::uint64_t runner = 0;  // a caller_id()
};

// The number of the calling fiber, or of a thread that runs none; never 0. No other has
// it while that one lives (of fibers, not before 2^40 more have been started).
VIGIL_API std::uint64_t caller_id() noexcept;

// Returns true if the caller is to run the function and then call end_once(), false if it
// has been run.
// Waits: throws stopped, wrong_place, std::logic_error, what f throws.
VIGIL_API bool begin_once(once_core& o, const wait_limit& limit);
VIGIL_API void end_once(once_core& o, bool done) noexcept;

}  // namespace VIGIL_DETAIL
