#include "core/sched/worker/idler.hpp"

#include "core/base/clock_source.hpp"
#include "core/machine/stack.hpp"
#include "core/sched/idle/tuning.hpp"
#include "core/sched/worker/ready_work.hpp"
#include "core/sched/worker/scheduler.hpp"

namespace VIGIL_DETAIL {

void idler::start_looking() noexcept {
  looking_ = true;
  turns_.share_no_more();
  sched_.idle().start_looking();
}

bool idler::stop_looking(std::size_t callbacks) noexcept {
  looking_ = false;
  const bool last = sched_.idle().stop_looking();
  if (sched_.idle().asleep() == 0) return false;
  // Others left to this one what they added while it was looking.
  if (last && any_work(sched_, callbacks)) share(false);
  return true;
}

void idler::share(bool is_one) noexcept {
  if (sched_.idle().leave() && !is_one) turns_.share_soon();
}

// Work is also a deadline to which no worker sleeps, this one included.
bool idler::sees_work() noexcept {
  if (!sched_.clock.is_virtual() && sched_.board.next_deadline.load() < sched_.idle().earliest())
    return true;
  return !inbox_.empty() || any_work(sched_);
}

// Returns a time before which the worker does not wake for deadlines, or 0. A deadline
// that is nearer than the time to fall asleep makes a sleep that is over at once, and
// costs a system call. One such is the price of being exact. Many in a row mean that
// deadlines come so fast that the worker would do nothing but system calls; then it
// sleeps past some of them, and takes them together. (docs/decisions/0025)
nanos idler::not_before(nanos now) noexcept {
  if (place_.asked == never || place_.asked - now >= tuning::no_sleep) {
    short_sleeps_ = 0;
    return 0;
  }
  return ++short_sleeps_ <= tuning::sleeps_in_vain ? 0 : now + tuning::batch;
}

void idler::rest() noexcept {
  if (std::exchange(just_woke_, false)) counters_.wakes_needless.add();
  if (!decay_stacks()) return;  // more to do: look around first
  const nanos now = monotonic_now();
  if (!sched_.timers().tidy()) return;  // the same
  if (lie_down()) sleep(now);
}

// Publishes and looks: IS1 and IS2 of idle.hpp. False if it has found something to do
// instead, or has made it.
bool idler::lie_down() noexcept {
  const nanos next = sched_.board.next_deadline.load();
  // The overseer that looks sees to the second one.
  const bool by_one =
      next == never || sched_.workers().size() == 1 || sched_.idle().overseen.looks();
  const nanos second = by_one ? never : sched_.timers().second_deadline();
  sched_.idle().lie_down(place_, next, second);
  // First, since a deadlock that is found makes fibers ready.
  if (next == never && sched_.idle().asleep() == sched_.workers().size()) sched_.above().all_rest();
  if (!sees_work()) return true;
  sched_.idle().stay_awake(place_);
  return false;
}

// IS3.
void idler::sleep(nanos now) noexcept {
  counters_.kernel_waits.add();
  const bool in_watch = place_.asleep_in != nullptr;
  if (decay_wants_attendant()) sched_.idle().overseen.ring();
  event_log& log = counters_.log;
  if (log.is_on()) log.write(event_kind::sleep);
  counters_.busy.lies_down();
  sched_.idle().sleep(place_, not_before(now));
  counters_.busy.gets_up();
  if (log.is_on()) log.write(event_kind::wake);
  just_woke_ = true;
  turns_.slept(in_watch);
}

}  // namespace VIGIL_DETAIL
