// shared_mutex: a word that counts who is inside, and two queues.
//
//   word   exclusive  a writer is inside
//          waiting    a queue is not empty; changed under the queue's lock only
//          readers    inside, in the bits above
//
// SM1 While `waiting` is set nobody comes in but by settle(), under the queue's
//     lock, and the last one inside leaves under that lock.
// SM2 settle() admits after a writer all readers that wait, after readers the first
//     writer; the admitted are inside before they are delivered (WQ3).
// SM3 With `waiting` not set the release of the word is the last touch; otherwise
//     that of the queue's lock, which those who wait have to take, or are not
//     delivered before.
#include "sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

#include <stdexcept>

namespace vigil::inline VIGIL_ABI::detail {

using detail::acq_rel;
using detail::acquire;
using detail::line;
using detail::relaxed;
using detail::release;
using detail::wake_list;

namespace {

using word = shared_mutex_core;

enum class after : std::uint8_t { writer, reader, giving_up };

line writers_of(shared_mutex_core& m) noexcept {
  return detail::all_of(m.queue);
}

line readers_of(shared_mutex_core& m) noexcept {
  return {m.first_reader, m.last_reader};
}

constexpr bool has_readers(std::uint32_t seen) noexcept {
  return seen >= word::one_reader;
}

void admit_readers(shared_mutex_core& m, wake_list& told) noexcept {
  while (queued_wait* const r = readers_of(m).claim_first()) {
    // ordering: what they are to see comes with their claims.
    m.word.fetch_add(word::one_reader, relaxed);
    told.add(*r->who);
  }
}

// SM1, SM2: admits every waiter that may come in now. Caller: holds the queue's lock.
void settle(shared_mutex_core& m, after what, wake_list& told) noexcept {
  // Pairs with the releases of those who have left.
  if ((m.word.load(acquire) & word::exclusive) == 0) {
    if (what == after::writer || writers_of(m).empty()) admit_readers(m, told);
    if (!has_readers(m.word.load(acquire))) {  // Pairs with the releases, as above
      if (queued_wait* const w = writers_of(m).claim_first()) {
        // ordering: as for the readers. Nobody else changes an empty word (SM1).
        m.word.fetch_or(word::exclusive, relaxed);
        told.add(*w->who);
      } else {
        admit_readers(m, told);
      }
    }
  }
  if (writers_of(m).empty() && readers_of(m).empty()) {
    // Pairs with the acquires of those that come in: it continues the releases of
    // those that left, which settle() has acquired.
    m.word.fetch_and(~word::waiting, release);
  }
}

bool try_now(shared_mutex_core& m, std::uint32_t keeps_out, std::uint32_t comes_in) noexcept {
  std::uint32_t seen = m.word.load(relaxed);  // ordering: the load only proposes
  while ((seen & keeps_out) == 0) {
    // Pairs with the releases of those who have left.
    if (m.word.compare_exchange_weak(seen, seen + comes_in, acquire, relaxed)) return true;
  }
  return false;
}

// Under the queue's lock; false if the caller came in after all.
bool announce(shared_mutex_core& m, std::uint32_t keeps_out, std::uint32_t comes_in) noexcept {
  std::uint32_t seen = m.word.load(relaxed);  // ordering: the load only proposes
  for (;;) {
    const bool free = (seen & keeps_out) == 0;
    const std::uint32_t next = free ? seen + comes_in : seen | word::waiting;
    // Pairs with the releases of those who have left.
    if (m.word.compare_exchange_weak(seen, next, acquire, relaxed)) return !free;
  }
}

bool wait_for_turn(shared_mutex_core& m,
                   line where,
                   std::uint32_t keeps_out,
                   std::uint32_t comes_in,
                   detail::wait_reason why,
                   const char* call,
                   const wait_limit& limit) {
  detail::caller self(limit, detail::caller::for_lock);
  queued_wait own;
  const bool over = limit.is_over();
  detail::queue_guard guard(m.queue);
  if (over) return try_now(m, keeps_out, comes_in);
  detail::before_waiting(self, call, guard);
  if (!announce(m, keeps_out, comes_in)) return true;
  return detail::wait_in(where, own, self, why, guard, [&m](wake_list& told) noexcept {
    settle(m, after::giving_up, told);
  });
}

}  // namespace

bool lock_slowly(shared_mutex_core& m, const wait_limit& limit) {
  return wait_for_turn(m,
                       writers_of(m),
                       ~std::uint32_t{0},
                       word::exclusive,
                       detail::wait_reason::shared_mutex_write,
                       "shared_mutex::lock",
                       limit);
}

bool lock_shared_slowly(shared_mutex_core& m, const wait_limit& limit) {
  return wait_for_turn(m,
                       readers_of(m),
                       word::exclusive | word::waiting,
                       word::one_reader,
                       detail::wait_reason::shared_mutex_read,
                       "shared_mutex::lock_shared",
                       limit);
}

void unlock_slowly(shared_mutex_core& m) {
  for (;;) {
    std::uint32_t seen = m.word.load(relaxed);  // ordering: the load only proposes
    if ((seen & word::exclusive) == 0) {
      throw std::logic_error(
          "vigil::shared_mutex::unlock: no writer holds it; a reader calls unlock_shared, and each "
          "once, best by a std::unique_lock or std::shared_lock");
    }
    if ((seen & word::waiting) == 0) {
      // Pairs with the acquires of those that come in; the last touch (SM3).
      if (m.word.compare_exchange_strong(seen, 0, release, relaxed)) return;
      continue;
    }
    wake_list told;
    detail::queue_guard guard(m.queue);
    // ordering: changed under the guard, or by the writer inside.
    if ((m.word.load(relaxed) & word::waiting) == 0) continue;  // who waited has given up
    // Pairs with the acquires of those that come in.
    m.word.fetch_and(~word::exclusive, release);
    settle(m, after::writer, told);
    guard.unlock();
    told.deliver();
    return;
  }
}

void unlock_shared_slowly(shared_mutex_core& m) {
  for (;;) {
    std::uint32_t seen = m.word.load(relaxed);  // ordering: the load only proposes
    if (!has_readers(seen)) {
      throw std::logic_error(
          "vigil::shared_mutex::unlock_shared: no reader holds it; a writer calls unlock, and each "
          "once, best by a std::unique_lock or std::shared_lock");
    }
    const std::uint32_t next = seen - word::one_reader;
    if ((seen & word::waiting) == 0 || has_readers(next)) {
      // Pairs with the acquires of those that come in; the last touch (SM3).
      if (m.word.compare_exchange_strong(seen, next, release, relaxed)) return;
      continue;
    }
    wake_list told;
    detail::queue_guard guard(m.queue);
    seen = m.word.load(relaxed);                // ordering: the load only proposes
    if ((seen & word::waiting) == 0) continue;  // who waited has given up
    // Others may leave at the same time, and may be the last instead. Pairs with
    // their releases, and with the acquires of those that come in.
    if (!m.word.compare_exchange_strong(seen, seen - word::one_reader, acq_rel, relaxed)) continue;
    settle(m, after::reader, told);
    guard.unlock();
    told.deliver();
    return;
  }
}

}  // namespace vigil::inline VIGIL_ABI::detail
