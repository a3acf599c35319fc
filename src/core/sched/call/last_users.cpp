#include "core/sched/call/last_users.hpp"

#include "core/sched/call/caller.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <cstring>

namespace VIGIL_DETAIL {

struct last_users::user {
  user_kind kind = user_kind::of_fiber;
  std::uint64_t runtime = 0;
  const fiber_identity* who = nullptr;  // of a fiber

  std::uint64_t id() const noexcept { return who != nullptr ? who->id : 0; }

  // ordering: LU1, of all its words.
  bool is_of(const object_user& e) const noexcept {
    return e.serial.load(order::relaxed) != 0 && e.kind.load(order::relaxed) == kind &&
           e.runtime.load(order::relaxed) == runtime && e.id.load(order::relaxed) == id();
  }
};

last_users::user last_users::user_of(const waiter* by) noexcept {
  if (by != nullptr && by->type() == waiter::kind::of_thread) return {user_kind::of_thread};
  if (by != nullptr && by->type() == waiter::kind::of_coroutine) return {user_kind::of_task};
  const fiber* const self = by != nullptr ? &by->as_fiber() : current_fiber();
  if (self == nullptr) return {user_kind::of_thread};
  // A runner is in a callback, or runs a task. ordering: the caller's own word.
  if (self->role == fiber_role::runner && self->callback.timer.load(order::relaxed) == nullptr) {
    return {user_kind::of_task};
  }
  return {user_kind::of_fiber, self->sched->number(), &self->identity};
}

void last_users::took(const waiter* by, std::int64_t n) noexcept {
  const user u = user_of(by);
  strike_out(givers_, u, n);
  note(takers_, ++last_take_, u, n);
}

void last_users::gave(const waiter* by, std::int64_t n) noexcept {
  const user u = user_of(by);
  strike_out(takers_, u, n);
  note(givers_, ++last_gift_, u, n);
}

void last_users::gave_back(std::int64_t n) noexcept {
  strike_out(takers_, user_of(nullptr), n);
}

void last_users::note(object_user (&among)[most],
                      std::uint64_t serial,
                      const user& u,
                      std::int64_t n) noexcept {
  // ordering: LU1. The number of an empty entry is the lowest.
  object_user& e = *std::min_element(among, among + most, [](const auto& a, const auto& b) {
    return a.serial.load(order::relaxed) < b.serial.load(order::relaxed);
  });
  e.serial.store(0, order::relaxed);  // ordering: by the fence below
  order_plain_memory();
  // ordering: LU2, of the words that follow.
  e.kind.store(u.kind, order::relaxed);
  e.runtime.store(u.runtime, order::relaxed);
  e.id.store(u.id(), order::relaxed);
  // ordering: as above.
  e.line.store(u.who != nullptr ? u.who->line : 0, order::relaxed);
  e.file.store(u.who != nullptr ? u.who->file : nullptr, order::relaxed);
  std::uint64_t name[object_user::name_words] = {};
  if (u.who != nullptr) std::memcpy(name, u.who->name, sizeof name);
  for (std::size_t i = 0; i < object_user::name_words; ++i)
    e.name[i].store(name[i], order::relaxed);  // ordering: LU2
  const fiber* const here = current_fiber();
  const clock_source* const clock = here != nullptr ? &here->sched->clock : nullptr;
  // ordering: LU2, of the words that follow.
  e.amount.store(n, order::relaxed);
  e.when.store(clock != nullptr ? clock->now() : monotonic_now(), order::relaxed);
  // ordering: as above.
  e.clock_of.store(here != nullptr ? here->sched->number() : 0, order::relaxed);
  e.is_virtual.store(clock != nullptr && clock->is_virtual() ? 1 : 0, order::relaxed);
  e.serial.store(serial, order::release);  // Pairs with the copies of a reader (LU2).
}

void last_users::strike_out(object_user (&among)[most], const user& u, std::int64_t n) noexcept {
  while (n > 0) {
    object_user* newest = nullptr;
    for (object_user& e : among) {
      // ordering: LU1.
      const bool is_newer =
          newest == nullptr || e.serial.load(order::relaxed) > newest->serial.load(order::relaxed);
      if (is_newer && u.is_of(e)) newest = &e;
    }
    if (newest == nullptr) return;
    const std::int64_t left = newest->amount.load(order::relaxed) - n;  // ordering: LU1
    if (left > 0) return newest->amount.store(left, order::relaxed);    // ordering: one word
    newest->serial.store(0, order::relaxed);  // ordering: nothing else is written
    n = -left;
  }
}

}  // namespace VIGIL_DETAIL
