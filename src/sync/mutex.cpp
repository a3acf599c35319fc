// mutex: one word that decides, and a queue of those who wait.
//
//   word   locked     somebody holds it
//          waiting    the queue is not empty; changed under the queue's lock only
//          woken      one was taken out of the queue and is on his way here
//          overtakes  how often it was taken by others meanwhile, in the bits above
//
// The danger. If an unlock hands the mutex to a waiter, no other can use it until
// that one runs, and each newcomer has to wait as well: a convoy. If it just frees
// the mutex, the waiter may find it taken each time, and starve.
//
// The rule. An unlock frees the mutex and wakes the first waiter, unless one is on
// its way already. Newcomers may take it, but only so many times while a waiter is
// on its way (overtakes), and not at all once that has waited for a millisecond. A
// waiter that comes too late goes back to the front of the queue.
//
// M1  waiting = the queue is not empty, whenever nobody holds the queue's lock.
// M2  Unlocked and waiting implies woken: so nobody is forgotten. Whoever is woken
//     takes the mutex, or takes the bit back while the mutex is locked, or passes
//     it on.
// M3  With `overtakes` at its most (mutex_overtakes) nobody but the woken one takes it.
// M4  The release of the word, or of the queue's lock, is an unlock's last touch of
//     the mutex. With `waiting` set the word is released under the queue's lock:
//     those who wait cannot return before that is released as well.
#include "sync/mutex.hpp"

#include "base/clock_source.hpp"
#include "sched/scheduler.hpp"
#include "sync/wait_queue.hpp"

#include <stdexcept>

namespace vigil::inline VIGIL_ABI::detail {

using detail::acquire;
using detail::nanos;
using detail::relaxed;
using detail::release;
using detail::wake_list;

namespace {

constexpr std::uint32_t locked = mutex_core::locked;
constexpr std::uint32_t waiting = 2;
constexpr std::uint32_t woken = 4;
constexpr std::uint32_t one_overtake = 8;
constexpr std::uint32_t all_overtakes = ~(locked | waiting | woken);
constexpr nanos patience = 1'000'000;

// Whether it is reserved for the waiter that is on its way.
bool is_kept(std::uint32_t word) noexcept {
  // ordering: a setting.
  return word != 0 && word / one_overtake >= detail::mutex_overtakes.load(relaxed);
}

// Takes it if it is free and not reserved for another. `on_his_way`: the caller is
// the waiter that was woken.
bool take(mutex_core& m, bool on_his_way) noexcept {
  std::uint32_t seen = m.word.load(relaxed);  // ordering: the load only proposes
  while ((seen & locked) == 0) {
    std::uint32_t next = seen | locked;
    if (on_his_way) {
      next = locked | (seen & waiting);
    } else if (seen != 0) {
      if (is_kept(seen)) return false;
      next += one_overtake;
    }
    // Pairs with the release in unlock() and unlock_slowly().
    if (m.word.compare_exchange_weak(seen, next, acquire, relaxed)) return true;
  }
  return false;
}

// For as long as a short section takes: waiting in the queue and being woken cost
// more. Alone on its worker a fiber would only keep the owner from running.
bool take_soon(mutex_core& m, bool on_his_way) noexcept {
  if (take(m, on_his_way)) return true;
  const detail::fiber* const f = detail::current_fiber();
  if (f != nullptr && f->sched->workers().size() == 1) return false;
  // ordering: a setting.
  const unsigned looks = detail::mutex_looks.load(relaxed);
  unsigned pauses = 4;
  for (unsigned i = 0; i < looks; ++i, pauses *= 2) {
    detail::cpu_pause(pauses);
    if (take(m, on_his_way)) return true;
  }
  return false;
}

// Virtual time has its own millisecond, so that a run can be replayed.
nanos now_of(const detail::waiter& w) noexcept {
  if (w.what() == detail::waiter::kind::of_fiber) {
    const detail::clock_source& clock = w.as_fiber().sched->clock;
    if (clock.is_virtual()) return clock.now();
  }
  return detail::monotonic_now();
}

// Under the queue's lock. The queue has become shorter by one who gave up.
void left_queue(mutex_core& m) noexcept {
  if (m.queue.first != nullptr) return;
  std::uint32_t seen = m.word.load(relaxed);  // ordering: the load only proposes
  std::uint32_t next = 0;
  do {
    next = seen & ~waiting;
    if ((next & woken) == 0) next &= locked;
    // ordering: hands nothing over; it goes on with the release before it.
  } while (!m.word.compare_exchange_weak(seen, next, relaxed));
}

// M1, M2: under the queue's lock, before the caller is queued. False if it has
// taken the mutex instead.
bool announce(mutex_core& m, bool on_his_way) noexcept {
  for (;;) {
    if (take(m, on_his_way)) return false;
    std::uint32_t seen = m.word.load(relaxed);  // ordering: the load only proposes
    // Free, but kept for another; free without that, and take() has not seen it.
    if ((seen & locked) == 0 && (on_his_way || !is_kept(seen))) continue;
    const std::uint32_t next = (seen | waiting) & ~(on_his_way ? woken : 0);
    // ordering: hands nothing over; it goes on with the release before it.
    if (m.word.compare_exchange_strong(seen, next, relaxed)) return true;
  }
}

// Tests and the compiler's inlining aside, the whole wait of lock().
bool lock_and_wait(mutex_core& m, const wait_limit& limit) {
  detail::caller self(limit, detail::caller::for_lock);
  queued_wait own;
  bool on_his_way = false;
  for (;;) {
    detail::queue_guard guard(m.queue);
    if (!on_his_way) {
      detail::before_waiting(self, "mutex::lock", guard);
      own.since = now_of(self.self());
    }
    if (!announce(m, on_his_way)) return true;
    if (!detail::wait_in(
            detail::all_of(m.queue),
            own,
            self,
            detail::wait_reason::mutex,
            guard,
            [&m](wake_list&) noexcept { left_queue(m); },
            on_his_way)) {
      return false;
    }
    on_his_way = true;
    if (take_soon(m, on_his_way)) return true;
  }
}

}  // namespace

bool lock_slowly(mutex_core& m, const wait_limit& limit) {
  if (take_soon(m, false)) return true;
  if (limit.is_over()) return false;
  return lock_and_wait(m, limit.absolute());
}

bool try_lock_slowly(mutex_core& m) noexcept {
  return take(m, false);
}

void unlock_slowly(mutex_core& m) {
  for (;;) {
    std::uint32_t seen = m.word.load(relaxed);  // ordering: the load only proposes
    if ((seen & locked) == 0) {
      throw std::logic_error(
          "vigil::mutex::unlock: the mutex is not locked; unlock once for each lock, best with a "
          "std::unique_lock or std::scoped_lock");
    }
    if ((seen & waiting) == 0 || (seen & woken) != 0) {
      const std::uint32_t next = (seen & (waiting | woken)) == 0 ? 0 : seen & ~locked;
      // Pairs with the acquire in take(); the last touch (M4).
      if (m.word.compare_exchange_strong(seen, next, release, relaxed)) return;
      continue;
    }
    detail::queue_guard guard(m.queue);
    seen = m.word.load(relaxed);          // ordering: changed under the guard, or by the owner
    if ((seen & waiting) == 0) continue;  // who waited has given up
    queued_wait* const next = detail::all_of(m.queue).claim_first();
    std::uint32_t word = m.queue.first != nullptr ? waiting : 0;
    if (next != nullptr) {
      const bool has_waited = now_of(*next->who) - next->since >= patience;
      word |= woken | (has_waited ? all_overtakes : seen & all_overtakes);
    }
    // Pairs with the acquire in take(). Locked, and the guard held: nobody else
    // changes the word.
    m.word.store(word, release);
    guard.unlock();
    if (next != nullptr) next->who->deliver();
    return;
  }
}

}  // namespace vigil::inline VIGIL_ABI::detail
