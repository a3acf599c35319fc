// mutex: one word that decides, and a queue of waiters.
//
//   word   locked     a caller holds it
//          waiting    the queue is not empty; changed under the queue's lock only
//          woken      a waiter was taken out of the queue and is on its way here
//          due        free, but for fast paths (lock_turns.hpp); `fresh` goes with it
//          overtakes  how often others have taken it meanwhile, in the bits above
//
// The danger. Handed to a waiter, the mutex cannot be used until that waiter runs, and
// each newcomer has to wait as well. Just freed, it may be found taken each time.
//
// The rule. An unlock frees the mutex and wakes the first waiter, unless one is already
// on its way. Newcomers may take it, but only so many times while a waiter is on its way
// (overtakes), and not at all once that waiter has waited for a millisecond. A waiter
// that comes too late goes back to the front of the queue.
//
// MU1 `waiting` is set exactly if the queue is not empty, whenever nobody holds its lock.
// MU2 Unlocked and waiting implies woken, so no waiter is forgotten. The woken waiter
//     takes the mutex, or takes the bit back while the mutex is locked, or passes it on.
// MU3 With `overtakes` at its maximum only the woken waiter takes the mutex.
// MU4 The release of the word, or of the queue's lock, is an unlock's last touch of the
//     mutex. With `waiting` set the word is released under the queue's lock: the waiters
//     cannot return before that lock is released as well.
// MU5 A select that was claimed cannot go back to the queue: its case is handed the
//     mutex. `locked` stays set, and `woken` clear.
#include "core/sync/mutex.hpp"

#include "core/base/clock_source.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sync/lock_turns.hpp"
#include "core/sync/wait_case.hpp"
#include "core/sync/wait_queue.hpp"

#include <stdexcept>

namespace VIGIL_DETAIL {

namespace {

constexpr std::uint32_t locked = mutex_core::locked;
constexpr std::uint32_t waiting = 2;
constexpr std::uint32_t woken = 16;
constexpr std::uint32_t one_overtake = 32;
constexpr std::uint32_t all_overtakes =
    ~(locked | waiting | woken | mutex_core::due | mutex_core::fresh);
constexpr nanos patience = 1'000'000;

// Returns whether the mutex is reserved for the waiter that is on its way.
bool is_reserved(std::uint32_t word) noexcept {
  // ordering: a setting.
  return word != 0 && (word & mutex_core::due) == 0 &&
         word / one_overtake >= mutex_overtakes.load(order::relaxed);
}

// Takes the mutex if it is free and not reserved for another caller. `was_woken`: the
// caller is the waiter that was woken.
bool take(mutex_core& m, bool was_woken) noexcept {
  std::uint32_t seen = m.word.load(order::relaxed);  // ordering: the load only proposes
  while ((seen & locked) == 0) {
    std::uint32_t next = seen | locked;
    if ((seen & mutex_core::due) != 0) {
      next = locked;
    } else if (was_woken) {
      next = locked | (seen & waiting);
    } else if (seen != 0) {
      if (is_reserved(seen)) return false;
      next += one_overtake;
    }
    // Pairs with the release in unlock() and unlock_slowly().
    if (m.word.compare_exchange_weak(seen, next, order::acquire, order::relaxed)) {
      if ((seen & mutex_core::fresh) != 0) [[unlikely]]
        m.until_due = detail::first_locks();
      return true;
    }
  }
  return false;
}

// Tries for as long as a short section takes: waiting in the queue and being woken cost
// more. With only one worker a fiber that tries would just keep the owner from running.
bool take_soon(mutex_core& m, bool was_woken) noexcept {
  if (take(m, was_woken)) return true;
  const fiber* const f = current_fiber();
  if (f != nullptr && f->sched->workers().size() == 1) return false;
  // ordering: a setting.
  const unsigned looks = mutex_looks.load(order::relaxed);
  unsigned pauses = 4;
  for (unsigned i = 0; i < looks; ++i, pauses *= 2) {
    detail::cpu_pause(pauses);
    if (take(m, was_woken)) return true;
  }
  return false;
}

// Virtual time has its own millisecond, so that a run can be replayed.
nanos now_of(const waiter& w) noexcept {
  return w.type() == waiter::kind::of_fiber ? w.as_fiber().sched->clock.now() : monotonic_now();
}

// Updates the word after a waiter has given up. Under the queue's lock.
void left_queue(mutex_core& m) noexcept {
  if (m.queue.first != nullptr) return;
  std::uint32_t seen = m.word.load(order::relaxed);  // ordering: the load only proposes
  std::uint32_t next = 0;
  do {
    next = seen & ~waiting;
    if ((next & woken) == 0) next &= locked;
    // ordering: hands nothing over; it continues the release before it.
  } while (!m.word.compare_exchange_weak(seen, next, order::relaxed));
}

// Sets `waiting` before the caller is queued (MU1, MU2). Under the queue's lock. Returns
// false if the caller has taken the mutex instead.
bool announce(mutex_core& m, bool was_woken) noexcept {
  for (;;) {
    if (take(m, was_woken)) return false;
    std::uint32_t seen = m.word.load(order::relaxed);  // ordering: the load only proposes
    // A free mutex that is not reserved for another was freed after take() looked.
    if ((seen & locked) == 0 && (was_woken || !is_reserved(seen))) continue;
    const std::uint32_t next = (seen | waiting) & ~(was_woken ? woken : 0);
    // ordering: hands nothing over; it continues the release before it.
    if (m.word.compare_exchange_strong(seen, next, order::relaxed)) return true;
  }
}

// Takes the mutex, waiting in the queue if it has to.
bool lock_and_wait(mutex_core& m, const wait_limit& limit) {
  caller self(limit, caller::for_lock);
  const queue_ref all = detail::all_of(m.queue);
  queued_wait own;
  for (bool was_woken = false;;) {
    queue_guard guard(m.queue);
    if (!was_woken) {
      if (self.may_not_wait()) {
        guard.unlock();
        self.refuse("mutex::lock");
      }
      own.since = now_of(self.own_waiter());
    }
    if (!announce(m, was_woken)) return true;
    self.open(own);  // nobody sees the record before the guard is released
    was_woken ? all.push_front(own) : all.push_back(own);
    guard.unlock();
    const outcome ended = self.wait(own.opened, {wait_reason::mutex, &m.queue}, [&]() noexcept {
      guard.lock();
      if (own.linked) all.remove(own);
      left_queue(m);
      guard.unlock();
    });
    self.throw_if_ended(ended);
    if (ended != outcome::value) return false;
    was_woken = true;
    if (take_soon(m, was_woken)) return true;
  }
}

[[gnu::noinline]] bool lock_or_wait(mutex_core& m, const wait_limit& limit) {
  if (!take_soon(m, false)) {
    if (limit.is_over() || !lock_and_wait(m, limit.absolute())) return false;
  }
  holder_came(m.holder);
  return true;
}

}  // namespace

bool lock_slowly(mutex_core& m, const wait_limit& limit) {
  return in_turn(
      limit, [&m](const wait_limit& l) { return lock_or_wait(m, l); }, detail::locks_to_count(m));
}

void lock_uncounted(mutex_core& m) {
  lock_or_wait(m, no_limit);
}

bool try_lock_slowly(mutex_core& m) noexcept {
  if (!take(m, false)) return false;
  holder_came(m.holder);
  return true;
}

namespace {

// With waiters each lock is counted, and the word is never due.
[[gnu::noinline]] void unlock_among_others(mutex_core& m, bool leaves_due) {
  for (;;) {
    std::uint32_t seen = m.word.load(order::relaxed);  // ordering: the load only proposes
    if ((seen & locked) == 0) {
      throw std::logic_error(
          "vigil::mutex::unlock: the mutex is not locked; unlock once for each lock, best with a "
          "std::unique_lock or std::scoped_lock");
    }
    if ((seen & waiting) == 0 || (seen & woken) != 0) {
      const std::uint32_t free = leaves_due ? mutex_core::due : 0;
      const std::uint32_t next = (seen & (waiting | woken)) == 0 ? free : seen & ~locked;
      // Pairs with the acquire in take(); the last touch (MU4).
      if (m.word.compare_exchange_strong(seen, next, order::release, order::relaxed)) return;
      continue;
    }
    queue_guard guard(m.queue);
    seen = m.word.load(order::relaxed);   // ordering: changed under the guard, or by the owner
    if ((seen & waiting) == 0) continue;  // the waiter has given up
    queued_wait* const next = detail::all_of(m.queue).claim_first();
    std::uint32_t word = m.queue.first != nullptr ? waiting : 0;
    if (next != nullptr && next->is_case) {
      word |= locked;  // MU5
    } else if (next != nullptr) {
      const bool has_waited = now_of(*next->whose) - next->since >= patience;
      word |= woken | (has_waited ? all_overtakes : seen & all_overtakes);
    }
    // Pairs with the acquire in take(). The mutex is locked and the guard is held, so
    // nobody else changes the word. A select's case has what was written by its claim.
    m.word.store(word, order::release);
    guard.unlock();
    if (next != nullptr) next->whose->deliver();
    return;
  }
}

}  // namespace

void unlock_slowly(mutex_core& m) {
  const bool leaves_due = m.until_due < 0;
  if (leaves_due) {
    m.until_due = locks_until_due - 1;
    std::uint32_t seen = locked;
    // Pairs with the acquire in take(); the last touch (MU4).
    if (m.word.compare_exchange_strong(seen, mutex_core::due, order::release, order::relaxed))
      return;
  }
  unlock_among_others(m, leaves_due);
}

namespace {

struct mutex_wait {
  using core = mutex_core;
  static constexpr bool takes_under_lock = false;

  static bool take(core& m, const select_case&) noexcept { return detail::take(m, false); }

  static bool announce(core& m, const select_case&, queued_wait&) noexcept {
    return detail::announce(m, false);
  }

  static queue_ref queue(core& m) noexcept { return all_of(m.queue); }

  static void left(core& m, wake_list&) noexcept { left_queue(m); }
};

}  // namespace

constexpr case_table mutex_case_table = wait_case<mutex_wait>::table(wait_reason::mutex);

}  // namespace VIGIL_DETAIL
