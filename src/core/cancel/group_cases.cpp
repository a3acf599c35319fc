// The results of a group one by one, and the cases of on_wait() and on_next().
#include "core/cancel/group_core.hpp"
#include "core/sched/wait/case_table.hpp"

#include <vigil/detail/select_case.hpp>

namespace VIGIL_DETAIL {

void group_core::hand_in(done_result& r) noexcept {
  wake_list claimed;
  {
    const lock_guard guard(lock_);
    done_.push_back(r);
    while (queued_waiter* const w = for_result_.pop_front()) {
      if (claimed.claim(*w, outcome::value)) break;
    }
  }
  claimed.deliver(run_order::next);
}

// Caller: all have ended, and no result is left. Throws what wait() would throw.
void group_core::finish_results(bool is_whole) {
  bool failed = false;
  {
    const lock_guard guard(lock_);
    failed = error_ != nullptr;
  }
  if (!failed && is_whole) return;
  finish();
  throw_unfinished();
}

// The cases run under the group's lock, except look() and end().
template <class Case, group_core::waiting_list group_core::*queue>
struct group_core::any_case {
  static constexpr case_table table() noexcept {
    return {wait_reason::group, 0, look, lock, poll, enqueue, retract, Case::end};
  }

  static group_core& of(const select_case& c) noexcept {
    return *static_cast<group_core*>(c.object);
  }

  static case_lock lock(void* group) noexcept {
    return case_lock(static_cast<group_core*>(group)->lock_);
  }

  static bool look(select_case& c) noexcept {
    const lock_guard guard(of(c).lock_);
    return Case::take(of(c), c);
  }

  static bool poll(select_case& c, wake_list&) noexcept { return Case::take(of(c), c); }

  static bool enqueue(select_case& c) {
    (of(c).*queue).push_back(make_place<queued_waiter>(c));
    return true;
  }

  static void retract(select_case& c, wake_list&) noexcept {
    auto& place = place_of<queued_waiter>(c);
    if (place.hook.linked) (of(c).*queue).remove(place);
  }
};

struct group_core::end_case : any_case<end_case, &group_core::selects_for_end_> {
  static bool take(group_core& g, select_case&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
    if (g.taken_ != 0) return false;
    g.waited_for_ = true;  // GR5
    return true;
  }

  static void end(select_case&) noexcept {}
};

// For wait(), which looks again.
struct group_core::ended_case : any_case<ended_case, &group_core::for_end_> {
  static bool take(group_core& g, select_case&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
    return g.taken_ == 0;
  }

  static void end(select_case&) noexcept {}
};

// The case has the result as its `value`; nullptr: all have ended, and no result is left.
struct group_core::next_case : any_case<next_case, &group_core::for_result_> {
  static bool take(group_core& g, select_case& c) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
    c.value = g.done_.pop_front();
    return c.value != nullptr || g.taken_ == 0;
  }

  static void end(select_case& c) noexcept { look(c); }
};

constexpr case_table group_case_table = group_core::end_case::table();
constexpr case_table ended_case_table = group_core::ended_case::table();
constexpr case_table next_case_table = group_core::next_case::table();

// --- what the templates call

void hand_in(group_core* g, done_result& r) noexcept {
  g->hand_in(r);
}

channel_status next_result(group_core* g, const wait_limit& limit, void*& result) {
  select_case next(next_case_table, g);
  select_case timed(select_case::kind::timed, limit);
  select_case* const cases[] = {&next, &timed};
  if (detail::select(cases, 2, choice::ordered) != 0) return channel_status::timeout;
  result = next.value;
  return result != nullptr ? channel_status::ok : channel_status::closed;
}

void finish_results(group_core* g, bool is_whole) {
  g->finish_results(is_whole);
}

}  // namespace VIGIL_DETAIL
