#include "sched/idler.hpp"

#include "base/clock_source.hpp"
#include "machine/stack.hpp"
#include "sched/clock_turns.hpp"
#include "sched/pinned_inbox.hpp"
#include "sched/ready_work.hpp"
#include "sched/report/deadlock.hpp"
#include "sched/report/stuck_watch.hpp"
#include "sched/run/run_state.hpp"
#include "sched/run/signal_hub.hpp"
#include "sched/timer_seam.hpp"

#include <algorithm>

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

bool idler::stop_looking() noexcept {
  looking_ = false;
  if (std::exchange(woke_for_decay_, false) && stuck_ != nullptr) stuck_->somebody_is_awake();
  const bool last = of_.idle.stop_looking();
  if (of_.idle.nobody_rests()) return false;
  // Others left to this one what they added while it was looking: if there is
  // more, anywhere, the next one is woken.
  if (last && of_.work.any()) share(false);
  return true;
}

void idler::share(bool is_one) noexcept {
  if (of_.idle.looking() == 0 && of_.idle.leave_to_alarm()) {
    of_.turns.share_soon();
  } else {
    // One fiber alone most likely goes on here as soon as the present one waits for it.
    of_.idle.wake_one(is_one);
  }
}

// Work is also a deadline to which no worker sleeps, this one included.
bool idler::sees_work() noexcept {
  if (!of_.is_virtual && of_.next_deadline.load() < of_.idle.earliest()) return true;
  return of_.inbox.filled() || of_.work.any();
}

// Returns a time before which the worker does not wake for deadlines, or 0. A deadline
// that is nearer than the time to fall asleep makes a sleep that is over at once, and
// costs a system call. One such is the price of being exact. Many in a row mean that
// deadlines come so fast that the worker would do nothing but system calls; then it
// sleeps past some of them, and takes them together. (docs/decisions/0006)
nanos idler::not_before(nanos now) noexcept {
  constexpr nanos no_sleep = 5'000;
  constexpr nanos real_sleep = 100'000;
  constexpr std::uint32_t row = 16;
  if (place_.asked == never) {
    short_sleeps_ = 0;
    return 0;
  }
  if (place_.asked - now >= no_sleep) {
    short_sleeps_ = 0;
    return 0;
  }
  return ++short_sleeps_ <= row ? 0 : now + real_sleep;
}

void idler::woke_in_vain() noexcept {
  if (!std::exchange(just_woke_, false)) return;
  of_.counters.wakes_needless.add();
  if (woken_in_vain_ < most_in_vain) ++woken_in_vain_;
}

// At each hand-over between two fibers that take turns on one worker, another worker
// would be woken and find nothing to do: that costs a system call each time, and a
// processor. So a worker that was woken in vain several times of late stays among those
// that look, and naps. It does not while all others sleep, nor for long: then no fiber
// hands over. (docs/decisions/0010)
bool idler::nap() noexcept {
  constexpr nanos shortest = 50'000;  // about what a wake-up takes
  // A nap that found nothing is followed by a longer one: looking takes 13 us each time.
  constexpr std::uint32_t doublings = 3;
  // ordering: settings.
  if (of_.workers == 1 || of_.is_virtual || woken_in_vain_ < of_.naps.after.load(order::relaxed) ||
      naps_ >= of_.naps.in_a_row.load(order::relaxed) ||  // ordering: as above
      of_.idle.asleep() + 1 >= of_.workers) {
    naps_ = 0;
    return false;
  }
  woke_in_vain();
  const nanos until = monotonic_now() + (shortest << std::min(naps_, doublings));
  // A worker that waits for a deadline lies down.
  if (of_.next_deadline.load() < until || !of_.idle.settle_to_nap(place_, until)) {
    naps_ = 0;
    return false;
  }
  ++naps_;
  if (of_.next_deadline.load() >= until && !of_.inbox.filled() && !of_.work.much()) {
    of_.counters.kernel_waits.add();
    const recorded_sleep recorded(of_.counters.log);
    of_.idle.nap(place_, until);
    just_woke_ = true;
  }
  of_.idle.get_up(place_);
  of_.turns.read_clock_next();
  return true;
}

void idler::rest(timer_seam& timers) noexcept {
  if (nap()) return;
  woke_in_vain();
  if (!decay_stacks()) return;  // more to do: look around first
  const nanos now = monotonic_now();
  nanos longest = never;
  if (!leaves_dead_ones(now, longest)) {
    if (!timers.tidy()) return;  // the same
    tidied_at_ = now;
  }
  if (lie_down(timers, longest)) sleep(now);
}

// Whether the heap may stay as it is, because the worker sleeps until `longest` at most.
// It may if it was tidied a moment ago and the earliest deadline, dead or not, is far.
bool idler::leaves_dead_ones(nanos now, nanos& longest) noexcept {
  constexpr nanos often = 1'000'000;
  constexpr nanos far = 4'000'000;
  const nanos next = of_.next_deadline.load();
  if (of_.is_virtual || next == never || now - tidied_at_ >= often || next - now <= far) {
    return false;
  }
  longest = now + far;
  return true;
}

// Publishes and looks: IS1 and IS2 of idle.hpp. False if it has found something to do
// instead, or has made it.
bool idler::lie_down(timer_seam& timers, nanos longest) noexcept {
  const nanos next = std::min(of_.next_deadline.load(), longest);
  const nanos second = next == never || of_.workers == 1 ? never : timers.second_deadline();
  std::uint64_t none_left = 0;
  do {
    of_.idle.lie_down(place_, next, second);
    if (sees_work()) {
      stay_awake();
      return false;
    }
    if (next == never && of_.idle.asleep() == of_.workers) of_.deadlocks.look();
    if (!must_end_lock_waits(none_left)) return true;
    stay_awake();
  } while (!ends_lock_waits(none_left));
  return false;
}

void idler::stay_awake() noexcept {
  of_.idle.stay_awake(place_);
  if (stuck_ != nullptr) stuck_->somebody_is_awake();
}

// IS3.
void idler::sleep(nanos now) noexcept {
  of_.counters.kernel_waits.add();
  const bool in_watch = place_.in_watch;
  // A step of the decay is nobody else's deadline: timers, virtual time and the search
  // for deadlocks do not know it.
  const decay_attendant decay;
  const recorded_sleep recorded(of_.counters.log);
  // A signal, or a request to stop, wakes the note by itself.
  of_.idle.sleep(
      place_,
      not_before(now),
      [&] { return of_.signals.any() || decay.step_has_come(); },
      decay.when());
  // The thread that looks for stuck workers would stay for such a moment.
  woke_for_decay_ = decay.step_has_come();
  just_woke_ = !woke_for_decay_;
  if (just_woke_ && stuck_ != nullptr) stuck_->somebody_is_awake();
  of_.turns.slept(in_watch);
}

// Whether this worker has to get up for a deadlocked run, which waits for its stop limit
// alone. `none_left` is the wake count after the last attempt, which found no wait for a
// lock: if it is still the present one, no other worker has got up, and there is none
// now. With the answer true it becomes the count as it will be once this worker has got
// up. Caller: has lain down.
bool idler::must_end_lock_waits(std::uint64_t& none_left) noexcept {
  if (!of_.state.deadlocked()) return false;
  const std::uint64_t asleep = of_.idle.all_asleep(of_.workers, monotonic_now());
  if (asleep == 0 || asleep == none_left || !of_.deadlocks.can_only_give_up(asleep)) return false;
  none_left = asleep + 1;
  return true;
}

// Ends the waits for locks. It looks again first: another worker may have seen the same
// and got up before, and a worker that was woken since may run the owners of the locks.
// False if there is nothing to run, so that the caller lies down again. Caller: has got
// up for this.
bool idler::ends_lock_waits(std::uint64_t wake_count) noexcept {
  return !of_.deadlocks.can_only_give_up(wake_count) || of_.deadlocks.end_lock_waits();
}

}  // namespace VIGIL_DETAIL
