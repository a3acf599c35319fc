// wait_case: the case_table of a lock or a count, made of what it does in its own way.
//
//   struct one {
//     using core = mutex_core;
//     static constexpr bool takes_under_lock = false;  // whether take() needs the lock
//     static bool take(core&, const select_case&) noexcept;
//     // Under the lock: lets it be queued; false: it was taken after all.
//     static bool announce(core&, const select_case&, queued_wait&) noexcept;
//     static queue_ref queue(core&) noexcept;
//     static void left(core&, wake_list& claimed) noexcept;  // a wait has ended without a value
//   };
//
// A case that is claimed has won: the core must not claim cases (queued_wait::is_case)
// for any other news, as it may claim fibers that look again. The rest of a new case is a
// function in vigil/cases.hpp, the extern table in vigil/detail/select_case.hpp, and
// perhaps a friend in the object's class.
#pragma once

#include "core/sched/wait/case_table.hpp"
#include "core/sync/wait_queue.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>

namespace VIGIL_DETAIL {

template <class One>
struct wait_case {
  using core = typename One::core;

  // Nothing is left to do once the wait is over (WQ3).
  static constexpr case_table table(wait_reason reason) noexcept {
    return {reason, queue_offset<core>(), look, lock, poll, enqueue, retract};
  }

 private:
  static core& of(void* object) noexcept { return *static_cast<core*>(object); }

  static bool look(select_case& c) noexcept {
    if constexpr (!One::takes_under_lock) return One::take(of(c.object), c);
    const queue_guard guard(of(c.object).queue);
    return One::take(of(c.object), c);
  }

  static case_lock lock(void* object) noexcept {
    return case_lock(of(object).queue.taken, lock_rank::sync);
  }

  static bool poll(select_case& c, wake_list&) noexcept { return One::take(of(c.object), c); }

  static bool enqueue(select_case& c) {
    auto& place = make_place<queued_wait>(c);
    place.is_case = true;
    if (!One::announce(of(c.object), c, place)) return false;
    One::queue(of(c.object)).push_back(place);
    return true;
  }

  static void retract(select_case& c, wake_list& claimed) noexcept {
    auto& place = place_of<queued_wait>(c);
    if (place.linked) One::queue(of(c.object)).remove(place);
    One::left(of(c.object), claimed);
  }
};

}  // namespace VIGIL_DETAIL
