// semaphore: a count of permits, and those who wait for some, both under the queue's
// lock. wait_queue.hpp says what is kept.
#include "sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

#include <limits>
#include <stdexcept>

namespace vigil::inline VIGIL_ABI::detail {

using detail::outcome;
using detail::wake_list;

namespace {

// WQ2, WQ3: those whose turn it is have their permits. Under the queue's lock.
void grant(counter_core& s, wake_list& told) noexcept {
  const detail::line all = detail::all_of(s.queue);
  while (s.queue.first != nullptr && s.queue.first->amount <= s.count) {
    queued_wait& next = *s.queue.first;
    all.remove(next);
    if (!next.who->claim(next.which, outcome::value)) continue;
    s.count -= next.amount;
    told.add(*next.who);
  }
}

// Under the queue's lock.
bool take_now(counter_core& s, std::int64_t n) noexcept {
  if (s.queue.first != nullptr || n > s.count) return false;
  s.count -= n;
  return true;
}

}  // namespace

bool acquire_permits(counter_core& s, std::int64_t n, const wait_limit& limit) {
  refuse_negative("vigil::semaphore::acquire: the number of permits", n);
  if (n == 0) return true;
  detail::queue_guard guard(s.queue);
  if (take_now(s, n)) return true;
  if (limit.is_over()) return false;
  detail::caller self(limit);
  detail::before_waiting(self, "semaphore::acquire", guard);
  queued_wait own;
  own.amount = n;
  // A request that gives up may have been in the way of smaller ones.
  return detail::wait_in(detail::all_of(s.queue),
                         own,
                         self,
                         detail::wait_reason::semaphore,
                         guard,
                         [&s](wake_list& told) noexcept { grant(s, told); });
}

bool try_acquire_permits(counter_core& s, std::int64_t n) {
  refuse_negative("vigil::semaphore::try_acquire: the number of permits", n);
  if (n == 0) return true;
  const detail::queue_guard guard(s.queue);
  return take_now(s, n);
}

void release_permits(counter_core& s, std::int64_t n) {
  refuse_negative("vigil::semaphore::release: the number of permits", n);
  wake_list told;
  {
    const detail::queue_guard guard(s.queue);
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

}  // namespace vigil::inline VIGIL_ABI::detail
