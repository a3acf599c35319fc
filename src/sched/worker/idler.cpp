#include "sched/worker/idler.hpp"

#include "base/clock_source.hpp"
#include "machine/stack.hpp"
#include "sched/idle/tuning.hpp"
#include "sched/queue/injection_queue.hpp"
#include "sched/wait/timer_seam.hpp"
#include "sched/worker/clock_turns.hpp"
#include "sched/worker/ready_work.hpp"
#include "sched/worker/run_seam.hpp"

namespace VIGIL_DETAIL {
namespace {

class recorded_sleep {
 public:
  explicit recorded_sleep(event_log& log) noexcept : log_(log) {
    if (log_.is_on()) log_.write(event_kind::sleep);
  }

  ~recorded_sleep() {
    if (log_.is_on()) log_.write(event_kind::wake);
  }

  recorded_sleep(const recorded_sleep&) = delete;
  recorded_sleep& operator=(const recorded_sleep&) = delete;

 private:
  event_log& log_;
};

}  // namespace

void idler::start_looking() noexcept {
  looking_ = true;
  of_.turns.share_no_more();
  of_.idle.start_looking();
}

bool idler::stop_looking(std::size_t callbacks) noexcept {
  looking_ = false;
  const bool last = of_.idle.stop_looking();
  if (of_.idle.asleep() == 0) return false;
  // Others left to this one what they added while it was looking.
  if (last && of_.work.any(callbacks)) share(false);
  return true;
}

void idler::share(bool is_one) noexcept {
  if (of_.idle.leave() && !is_one) of_.turns.share_soon();
}

// Work is also a deadline to which no worker sleeps, this one included.
bool idler::sees_work() noexcept {
  if (!of_.is_virtual && of_.next_deadline.load() < of_.idle.earliest()) return true;
  return !of_.inbox.empty() || of_.work.any();
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

void idler::woke_in_vain() noexcept {
  if (std::exchange(just_woke_, false)) of_.counters.wakes_needless.add();
}

void idler::rest(timer_seam& timers) noexcept {
  woke_in_vain();
  if (!decay_stacks()) return;  // more to do: look around first
  const nanos now = monotonic_now();
  if (!timers.tidy()) return;  // the same
  if (lie_down(timers)) sleep(now);
}

// Publishes and looks: IS1 and IS2 of idle.hpp. False if it has found something to do
// instead, or has made it.
bool idler::lie_down(timer_seam& timers) noexcept {
  const nanos next = of_.next_deadline.load();
  // The overseer that looks sees to the second one.
  const bool by_one = next == never || of_.workers == 1 || of_.idle.oversight.looks();
  const nanos second = by_one ? never : timers.second_deadline();
  of_.idle.lie_down(place_, next, second);
  if (sees_work()) {
    stay_awake();
    return false;
  }
  if (next == never && of_.idle.asleep() == of_.workers) of_.run.all_rest();
  return true;
}

void idler::stay_awake() noexcept {
  of_.idle.stay_awake(place_);
  of_.idle.oversight.somebody_is_awake();
}

// IS3.
void idler::sleep(nanos now) noexcept {
  of_.counters.kernel_waits.add();
  const bool in_watch = place_.in_watch;
  if (decay_wants_attendant()) of_.idle.oversight.ring();
  const recorded_sleep recorded(of_.counters.log);
  of_.idle.sleep(place_, not_before(now));
  of_.idle.oversight.somebody_is_awake();
  just_woke_ = true;
  of_.turns.slept(in_watch);
}

}  // namespace VIGIL_DETAIL
