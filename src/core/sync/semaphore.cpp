// semaphore: a count of permits and its waiters, both under the queue's lock. The
// invariants stand in wait_queue.hpp.
#include "core/sched/call/last_users.hpp"
#include "core/sched/worker/turn_budget.hpp"
#include "core/sync/take_or_wait.hpp"
#include "core/sync/wait_case.hpp"
#include "core/sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

#include <limits>
#include <new>
#include <stdexcept>

namespace VIGIL_DETAIL {

namespace {

constexpr std::int64_t most_permits = std::numeric_limits<std::int64_t>::max();

std::int64_t permits_in(const permit_core& s) noexcept {
  return s.count & most_permits;
}

// The first waiter, or the first case of its select that does not ask for too much: the
// cases of one select do not wait behind one another. nullptr: the first has to wait.
queued_wait* next_to_grant(const permit_core& s) noexcept {
  queued_wait* const first = s.queue.first;
  queued_wait* w = first;
  while (w != nullptr && w->amount > permits_in(s))
    w = is_same_wait(first, w->after) ? w->after : nullptr;
  return w;
}

// Gives the waiters whose turn it is their permits (WQ2, WQ3). Under the queue's lock.
void grant(permit_core& s, wake_list& claimed) noexcept {
  while (queued_wait* const next = next_to_grant(s)) {
    detail::all_of(s.queue).remove(*next);
    if (!claimed.claim(*next, outcome::value)) continue;
    s.count -= next->amount;
    if (s.users != nullptr) s.users->took(next->whose, next->amount);
  }
}

// Takes permits of a semaphore that remembers. Under the queue's lock.
bool take_noted(permit_core& s, std::int64_t n) noexcept {
  if (s.queue.first != nullptr || n > permits_in(s)) return false;
  s.count -= n;
  s.users->took(nullptr, n);
  return true;
}

struct permit_wait {
  using core = permit_core;
  static constexpr bool takes_under_lock = true;

  static bool take(core& s, const select_case& c) noexcept {
    if (c.amount == 0) return true;
    if (s.queue.first != nullptr || c.amount > s.count) {
      return s.count < 0 && take_noted(s, c.amount);
    }
    s.count -= c.amount;
    return true;
  }

  static bool announce(core&, const select_case& c, queued_wait& place) noexcept {
    place.amount = c.amount;
    return true;
  }

  static queue_ref queue(core& s) noexcept { return all_of(s.queue); }

  static void left(core& s, wake_list& claimed) noexcept { grant(s, claimed); }
};

}  // namespace

constexpr case_table permit_case_table = wait_case<permit_wait>::table(wait_reason::semaphore);

void remember_users(permit_core& s) noexcept {
  s.users = new (std::nothrow) last_users(&s.queue);
  if (s.users != nullptr) s.count |= ~most_permits;
}

void forget_users(permit_core& s) noexcept {
  delete s.users;
}

std::int64_t permits_of(const permit_core& s) noexcept {
  const queue_guard guard(s.queue);
  return permits_in(s);
}

bool acquire_permits(permit_core& s, std::int64_t n, const wait_limit& limit) {
  refuse_negative("vigil::semaphore::acquire: the number of permits", n);
  return in_turn(limit, [&s, n](const wait_limit& l) {
    if (n == 0) return true;
    select_case one(permit_case_table, &s, n);
    return take_or_wait(one, l, "semaphore::acquire");
  });
}

bool try_acquire_permits(permit_core& s, std::int64_t n) {
  refuse_negative("vigil::semaphore::try_acquire: the number of permits", n);
  if (n == 0) return true;
  select_case one(permit_case_table, &s, n);
  return permit_case_table.look(one);
}

namespace {

// Called before a release for which there may be too many permits, or of a semaphore that
// remembers. Throws std::overflow_error.
[[gnu::noinline]] void look_at_release(permit_core& s, std::int64_t n) {
  if (permits_in(s) > most_permits - n) {
    throw std::overflow_error(
        "vigil::semaphore::release: there would be more than 2^63 - 1 permits; release what was "
        "acquired");
  }
  s.users->gave_back(n);
}

}  // namespace

void release_permits(permit_core& s, std::int64_t n) {
  refuse_negative("vigil::semaphore::release: the number of permits", n);
  wake_list claimed;
  {
    const queue_guard guard(s.queue);
    const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(s.count) +
                                               static_cast<std::uint64_t>(n));
    if ((sum | s.count) < 0) [[unlikely]]
      look_at_release(s, n);
    s.count = sum;
    if (s.queue.first == nullptr) return;
    grant(s, claimed);
  }
  claimed.deliver();
}

}  // namespace VIGIL_DETAIL
