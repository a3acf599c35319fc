// wait_group and latch: a count and the callers that wait until it is zero, both under
// the queue's lock. The invariants stand in wait_queue.hpp.
#include "core/sched/worker/turn_budget.hpp"
#include "core/sync/take_or_wait.hpp"
#include "core/sync/wait_case.hpp"
#include "core/sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

#include <stdexcept>

namespace VIGIL_DETAIL {

namespace {

void change(counter_core& c, std::int64_t n, const char* too_low, const char* too_high) {
  wake_list claimed;
  {
    const queue_guard guard(c.queue);
    std::int64_t next = 0;
    const bool overflow = __builtin_add_overflow(c.count, n, &next);
    if (overflow && n > 0) throw std::logic_error(too_high);
    if (overflow || next < 0) throw std::logic_error(too_low);
    c.count = next;
    if (next == 0) detail::all_of(c.queue).claim_all(claimed);
  }
  claimed.deliver();
}

}  // namespace

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
  const queue_guard guard(c.queue);
  return c.count;
}

namespace {

struct zero_wait {
  using core = counter_core;
  static constexpr bool takes_under_lock = true;

  static bool take(core& c, const select_case&) noexcept { return c.count == 0; }

  static bool announce(core&, const select_case&, queued_wait&) noexcept { return true; }

  static queue_ref queue(core& c) noexcept { return all_of(c.queue); }

  static void left(core&, wake_list&) noexcept {}
};

}  // namespace

constexpr case_table wait_group_case_table = wait_case<zero_wait>::table(wait_reason::wait_group);
constexpr case_table latch_case_table = wait_case<zero_wait>::table(wait_reason::latch);

bool wait(counter_core& c, bool is_latch, const wait_limit& limit) {
  return in_turn(limit, [&c, is_latch](const wait_limit& l) {
    if (count_of(c) == 0) return true;
    select_case one(is_latch ? latch_case_table : wait_group_case_table, &c);
    return wait_for_case(one, l, is_latch ? "latch::wait" : "wait_group::wait", caller::stoppable);
  });
}

}  // namespace VIGIL_DETAIL
