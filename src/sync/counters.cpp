// wait_group, latch and semaphore: a count, and those who wait for it, both under
// the queue's lock. wait_queue.hpp says what is kept.
#include "sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

#include <limits>
#include <stdexcept>
#include <string>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

using internal::outcome;
using internal::wake_list;

namespace {

// The guard of a queue that is looked at only.
wait_queue& of(const wait_queue& q) noexcept {
  return const_cast<wait_queue&>(q);
}

void change(counter_core& c, std::int64_t n, const char* too_low, const char* too_high) {
  wake_list told;
  {
    const internal::queue_guard guard(c.queue);
    std::int64_t next = 0;
    const bool overflow = __builtin_add_overflow(c.count, n, &next);
    if (overflow && n > 0) throw std::logic_error(too_high);
    if (overflow || next < 0) throw std::logic_error(too_low);
    c.count = next;
    if (next == 0) internal::all_of(c.queue).claim_all(told);
  }
  told.deliver();
}

// S2, S3: those whose turn it is have their permits. Under the queue's lock.
void grant(semaphore_core& s, wake_list& told) noexcept {
  const internal::line all = internal::all_of(s.queue);
  while (s.queue.first != nullptr && s.queue.first->amount <= s.count) {
    queued_wait& next = *s.queue.first;
    all.remove(next);
    if (!next.who->claim(next.which, outcome::value)) continue;
    s.count -= next.amount;
    told.add(*next.who);
  }
}

// Under the queue's lock.
bool take_now(semaphore_core& s, std::int64_t n) noexcept {
  if (s.queue.first != nullptr || n > s.count) return false;
  s.count -= n;
  return true;
}

}  // namespace

// --- wait_group and latch

void add_to(counter_core& c, std::int64_t n) {
  change(c,
         n,
         "vigil::wait_group: the count would be below zero; call done() once for each that was "
         "added, and add() before the fiber starts",
         "vigil::wait_group::add: the count would pass 2^63 - 1");
}

void count_down(counter_core& c, std::int64_t n) {
  if (n < 0) {
    throw std::logic_error("vigil::latch::count_down: the number is negative; a latch never rises");
  }
  if (n == 0) return;
  change(c,
         -n,
         "vigil::latch::count_down: more than is left; count down as often as the constructor was "
         "told",
         "");
}

std::int64_t count_of(const counter_core& c) noexcept {
  const internal::queue_guard guard(of(c.queue));
  return c.count;
}

bool wait(counter_core& c, bool is_latch, const wait_limit& limit) {
  internal::queue_guard guard(c.queue);
  if (c.count == 0) return true;
  if (limit.is_over()) return false;
  internal::caller self(limit);
  internal::before_waiting(self, is_latch ? "latch::wait" : "wait_group::wait", guard);
  queued_wait own;
  return internal::wait_in(
      internal::all_of(c.queue),
      own,
      self,
      is_latch ? internal::wait_reason::latch : internal::wait_reason::wait_group,
      guard,
      internal::changes_nothing);
}

void check_latch(std::int64_t count) {
  throw std::invalid_argument("vigil::latch: the count is negative (" + std::to_string(count) +
                              ")");
}

// --- semaphore

bool acquire_permits(semaphore_core& s, std::int64_t n, const wait_limit& limit) {
  check_permits(n, "acquire");
  if (n == 0) return true;
  internal::queue_guard guard(s.queue);
  if (take_now(s, n)) return true;
  if (limit.is_over()) return false;
  internal::caller self(limit);
  internal::before_waiting(self, "semaphore::acquire", guard);
  queued_wait own;
  own.amount = n;
  // Who gives up may have been in the way of smaller ones.
  return internal::wait_in(internal::all_of(s.queue),
                           own,
                           self,
                           internal::wait_reason::semaphore,
                           guard,
                           [&s](wake_list& told) noexcept { grant(s, told); });
}

bool try_acquire_permits(semaphore_core& s, std::int64_t n) {
  check_permits(n, "try_acquire");
  if (n == 0) return true;
  const internal::queue_guard guard(s.queue);
  return take_now(s, n);
}

void release_permits(semaphore_core& s, std::int64_t n) {
  check_permits(n, "release");
  wake_list told;
  {
    const internal::queue_guard guard(s.queue);
    if (s.count > std::numeric_limits<std::int64_t>::max() - n) {
      throw std::overflow_error(
          "vigil::semaphore::release: there would be more than 2^63 - 1 permits; release what was "
          "acquired");
    }
    s.count += n;
    grant(s, told);
  }
  told.deliver();
}

std::int64_t count_of(const semaphore_core& s) noexcept {
  const internal::queue_guard guard(of(s.queue));
  return s.count;
}

void check_permits(std::int64_t n, const char* call) {
  if (n >= 0) return;
  throw std::invalid_argument(std::string("vigil::semaphore::") + call +
                              ": the number of permits is negative (" + std::to_string(n) + ")");
}

void check_semaphore(std::int64_t count) {
  throw std::invalid_argument("vigil::semaphore: the number of permits is negative (" +
                              std::to_string(count) + ")");
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil
