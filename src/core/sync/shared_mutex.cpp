// shared_mutex: a word that counts its holders, and two queues.
//
//   word   exclusive  a writer is inside
//          waiting    a queue is not empty; changed under the queue's lock only
//          due        the next lock is counted (lock_turns.hpp); only while nobody
//                     waits and no writer is inside
//          fresh      with due alone: no lock has been left out yet
//          readers    how many are inside, in the bits above
//
// SM1 While `waiting` is set, callers come in only through settle(), under the queue's
//     lock, and the last one inside leaves under that lock.
// SM2 After a writer, settle() admits all waiting readers; after readers, the first
//     writer. The admitted are inside before they are delivered (WQ3).
// SM3 With `waiting` clear, the release of the word is the last touch. Otherwise the
//     release of the queue's lock is: a waiter has to take that lock, or is not delivered
//     before the release.
#include "core/sync/lock_turns.hpp"
#include "core/sync/take_or_wait.hpp"
#include "core/sync/wait_case.hpp"
#include "core/sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

#include <stdexcept>

namespace VIGIL_DETAIL {

namespace {

using word = shared_mutex_core;

// The bits that keep a caller out.
constexpr std::uint32_t is_free = word::due | word::fresh;  // as is 0
constexpr std::uint32_t keeps_writers_out = ~is_free;
constexpr std::uint32_t keeps_readers_out = word::exclusive | word::waiting;

enum class after : std::uint8_t { writer, reader, giving_up };

queue_ref writers_of(shared_mutex_core& m) noexcept {
  return detail::all_of(m.queue);
}

queue_ref readers_of(shared_mutex_core& m) noexcept {
  return {m.first_reader, m.last_reader};
}

constexpr bool has_readers(std::uint32_t seen) noexcept {
  return seen >= word::one_reader;
}

void admit_readers(shared_mutex_core& m, wake_list& claimed) noexcept {
  while (queued_wait* const r = readers_of(m).claim_first()) {
    // ordering: the readers see what they have to through their claims.
    m.word.fetch_add(word::one_reader, order::relaxed);
    claimed.add(*r->whose);
  }
}

// Admits every waiter that may come in now (SM1, SM2). Caller: holds the queue's lock.
void settle(shared_mutex_core& m, after event, wake_list& claimed) noexcept {
  // Pairs with the releases of the holders that have left.
  if ((m.word.load(order::acquire) & word::exclusive) == 0) {
    if (event == after::writer || writers_of(m).empty() ||
        is_same_wait(m.queue.first, m.first_reader)) {  // a select that waits for both
      admit_readers(m, claimed);
    }
    if (!has_readers(m.word.load(order::acquire))) {  // Pairs with the releases, as above
      if (queued_wait* const w = writers_of(m).claim_first()) {
        // ordering: as for the readers. Nobody else changes an empty word (SM1).
        m.word.fetch_or(word::exclusive, order::relaxed);
        claimed.add(*w->whose);
      } else {
        admit_readers(m, claimed);
      }
    }
  }
  if (writers_of(m).empty() && readers_of(m).empty()) {
    // Pairs with the acquires of callers that come in: it continues the releases of the
    // holders that left, which settle() has acquired.
    m.word.fetch_and(~word::waiting, order::release);
  }
}

// Called by the one that has come in.
void count_from_here(shared_mutex_core& m, std::uint32_t seen) noexcept {
  // ordering: a count, which may lose some.
  if ((seen & word::fresh) != 0) m.until_due.store(detail::first_locks(), order::relaxed);
}

bool try_now(shared_mutex_core& m, std::uint32_t keeps_out, std::uint32_t comes_in) noexcept {
  std::uint32_t seen = m.word.load(order::relaxed);  // ordering: the load only proposes
  while ((seen & keeps_out) == 0) {
    // Pairs with the releases of the holders that have left.
    if (m.word.compare_exchange_weak(
            seen, (seen & ~is_free) + comes_in, order::acquire, order::relaxed)) {
      count_from_here(m, seen);
      return true;
    }
  }
  return false;
}

// Sets `waiting`; false if the caller came in after all. Under the queue's lock.
bool announce(shared_mutex_core& m, std::uint32_t keeps_out, std::uint32_t comes_in) noexcept {
  std::uint32_t seen = m.word.load(order::relaxed);  // ordering: the load only proposes
  for (;;) {
    const bool free = (seen & keeps_out) == 0;
    const std::uint32_t next =
        free ? (seen & ~is_free) + comes_in : (seen & ~is_free) | word::waiting;
    // Pairs with the releases of the holders that have left.
    if (m.word.compare_exchange_weak(seen, next, order::acquire, order::relaxed)) {
      count_from_here(m, seen);
      return !free;
    }
  }
}

template <std::uint32_t keeps_out, std::uint32_t comes_in, queue_ref (*queue_of)(word&) noexcept>
struct shared_mutex_wait {
  using core = shared_mutex_core;
  static constexpr bool takes_under_lock = false;

  static bool take(core& m, const select_case&) noexcept { return try_now(m, keeps_out, comes_in); }

  static bool announce(core& m, const select_case&, queued_wait&) noexcept {
    return detail::announce(m, keeps_out, comes_in);
  }

  static queue_ref queue(core& m) noexcept { return queue_of(m); }

  static void left(core& m, wake_list& claimed) noexcept { settle(m, after::giving_up, claimed); }
};

using write_wait = shared_mutex_wait<keeps_writers_out, word::exclusive, writers_of>;
using read_wait = shared_mutex_wait<keeps_readers_out, word::one_reader, readers_of>;

}  // namespace

constexpr case_table write_case_table =
    wait_case<write_wait>::table(wait_reason::shared_mutex_write);
constexpr case_table read_case_table = wait_case<read_wait>::table(wait_reason::shared_mutex_read);

namespace {

bool write_now(shared_mutex_core& m, const wait_limit& limit) {
  select_case one(write_case_table, &m);
  if (!take_or_wait(one, limit, "shared_mutex::lock", caller::for_lock)) return false;
  holder_came(m.holder);
  return true;
}

bool read_now(shared_mutex_core& m, const wait_limit& limit) {
  select_case one(read_case_table, &m);
  return take_or_wait(one, limit, "shared_mutex::lock_shared", caller::for_lock);
}

// The bit that an unlock leaves if nobody waits: `due` if it is time to. Readers inside
// do not matter: there may always be one.
std::uint32_t free_word(shared_mutex_core& m) noexcept {
  // ordering: a count, which may lose some.
  if (m.until_due.load(order::relaxed) >= 0) return 0;
  m.until_due.store(locks_until_due - 1, order::relaxed);  // ordering: as above
  return word::due;
}

}  // namespace

bool lock_slowly(shared_mutex_core& m, const wait_limit& limit) {
  return in_turn(
      limit, [&m](const wait_limit& l) { return write_now(m, l); }, detail::locks_to_count(m));
}

bool lock_shared_slowly(shared_mutex_core& m, const wait_limit& limit) {
  return in_turn(
      limit, [&m](const wait_limit& l) { return read_now(m, l); }, detail::locks_to_count(m));
}

bool try_lock_slowly(shared_mutex_core& m) noexcept {
  if (!try_now(m, keeps_writers_out, word::exclusive)) return false;
  holder_came(m.holder);
  return true;
}

bool try_lock_shared_slowly(shared_mutex_core& m) noexcept {
  return try_now(m, keeps_readers_out, word::one_reader);
}

void unlock_slowly(shared_mutex_core& m) {
  for (;;) {
    std::uint32_t seen = m.word.load(order::relaxed);  // ordering: the load only proposes
    if ((seen & word::exclusive) == 0) {
      throw std::logic_error(
          "vigil::shared_mutex::unlock: no writer holds it; a reader calls unlock_shared, and each "
          "once, best by a std::unique_lock or std::shared_lock");
    }
    if ((seen & word::waiting) == 0) {
      // Pairs with the acquires of those that come in; the last touch (SM3).
      if (m.word.compare_exchange_strong(seen, free_word(m), order::release, order::relaxed))
        return;
      continue;
    }
    wake_list claimed;
    queue_guard guard(m.queue);
    // ordering: changed under the guard, or by the writer inside.
    if ((m.word.load(order::relaxed) & word::waiting) == 0) continue;  // the waiters have given up
    // Pairs with the acquires of those that come in.
    m.word.fetch_and(~word::exclusive, order::release);
    settle(m, after::writer, claimed);
    guard.unlock();
    claimed.deliver();
    return;
  }
}

void unlock_shared_slowly(shared_mutex_core& m) {
  const std::uint32_t left = free_word(m);
  for (;;) {
    std::uint32_t seen = m.word.load(order::relaxed);  // ordering: the load only proposes
    if (!has_readers(seen)) {
      throw std::logic_error(
          "vigil::shared_mutex::unlock_shared: no reader holds it; a writer calls unlock, and each "
          "once, best by a std::unique_lock or std::shared_lock");
    }
    const std::uint32_t next = seen - word::one_reader;
    if ((seen & word::waiting) == 0 || has_readers(next)) {
      const std::uint32_t last = (seen & word::waiting) == 0 ? next | left : next;
      // Pairs with the acquires of those that come in; the last touch (SM3).
      if (m.word.compare_exchange_strong(seen, last, order::release, order::relaxed)) return;
      continue;
    }
    wake_list claimed;
    queue_guard guard(m.queue);
    seen = m.word.load(order::relaxed);         // ordering: the load only proposes
    if ((seen & word::waiting) == 0) continue;  // the waiters have given up
    // Other readers may leave at the same time, and may be the last instead. Pairs with
    // their releases, and with the acquires of callers that come in.
    if (!m.word.compare_exchange_strong(
            seen, seen - word::one_reader, order::acq_rel, order::relaxed))
      continue;
    settle(m, after::reader, claimed);
    guard.unlock();
    claimed.deliver();
    return;
  }
}

}  // namespace VIGIL_DETAIL
