#include "core/sync/take_or_wait.hpp"

#include <mutex>

namespace VIGIL_DETAIL {

case_look take_or_queue(select_case& c, bool over, const case_owner& owner) {
  const case_table& table = *c.table;
  const case_lock lock = table.lock(c.object);
  wake_list claimed;
  {
    const std::lock_guard held(lock);
    if (!table.poll(c, claimed)) {
      if (over) return case_look::over;
      if (owner.may_not_wait) return case_look::refused;
      if (table.enqueue(c)) {
        place_of(c) = {&owner.own_waiter, owner.own_waiter.open(owner.stoppable, owner.for_lock)};
        return case_look::queued;
      }
    }
  }
  claimed.deliver(run_order::next);
  return case_look::taken;
}

bool wait_for_case(select_case& c, const wait_limit& limit, const char* call, caller::mode m) {
  if (limit.is_relative() && limit.is_over()) return false;  // reads no clock
  caller self(limit, m);
  case_owner owner = self.as_owner();
  if (m == caller::unstoppable) owner.may_not_wait = false;  // the caller has asked
  const case_look found = take_or_queue(c, limit.is_over(), owner);
  if (found == case_look::refused) self.refuse(call);
  if (found != case_look::queued) return found == case_look::taken;
  outcome ended = outcome::open;
  try {
    ended = self.wait(place_of(c).opened, {c.table->reason, shown_of(c)});
  } catch (...) {
    take_back(c);
    throw;
  }
  if (take_back(c)) return true;
  self.throw_if_ended(ended);
  return false;
}

}  // namespace VIGIL_DETAIL
