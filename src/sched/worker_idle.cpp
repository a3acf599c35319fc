// How a worker that found nothing naps, lies down and gets up, and what it owes
// the others before it goes back to work: the worker's part of idle.hpp.
#include "sched/report/stuck_watch.hpp"
#include "sched/scheduler.hpp"
#include "sched/worker.hpp"

#include <algorithm>

namespace vigil::inline VIGIL_ABI::detail {

void worker::stop_looking() noexcept {
  looking_ = false;
  const bool last = sched.idle().stop_looking();
  cover_before_user_code = false;
  if (sched.idle().nobody_rests()) return;
  // What others added while this one was looking was left to it: if there is
  // more, anywhere, the next one is woken.
  if (last && sched.work.any()) sched.idle().wake_one();
  sched.cover();
}

bool worker::sees_work() noexcept {
  if (by_seed_ == nullptr && sched.next_deadline.load() < sched.idle().earliest()) return true;
  return inbox_filled_.load() || (sched.work.any() && !leaves_what_it_sees());
}

// Caller: has lain down, and has seen work that is not its own.
bool worker::leaves_what_it_sees() noexcept {
  if (!is_kept() || sched.signals.any() || sched.state.over()) return false;
  takes_all_ = !sched.idle().hand_on(place);
  return !takes_all_;
}

// A deadline nearer than it takes to fall asleep makes a sleep that is none: a
// system call, and awake again. One such is the price of being exact. Many in a
// row mean that deadlines come faster than that, so that nothing but system
// calls would be done in between; then the worker sleeps past some of them, and
// takes them together. (docs/decisions/0006)
nanos worker::not_before() noexcept {
  constexpr nanos no_sleep = 5'000;
  constexpr nanos real_sleep = 100'000;
  constexpr std::uint32_t row = 16;
  if (place.asked == never) {
    short_sleeps_ = 0;
    return 0;
  }
  const nanos now = monotonic_now();
  if (place.asked - now >= no_sleep) {
    short_sleeps_ = 0;
    return 0;
  }
  return ++short_sleeps_ <= row ? 0 : now + real_sleep;
}

void worker::woke_in_vain() noexcept {
  if (!std::exchange(just_woke_, false)) return;
  counters.wakes_needless.add();
  if (woken_in_vain_ < 16) ++woken_in_vain_;
}

// Two fibers that take turns on one worker would wake another one at each
// hand-over, which finds nothing to do: a system call for each, and a processor
// that does nothing else. A worker that was woken in vain several times of late
// therefore stays among those who look and naps. Not while all others sleep,
// and not for long: then nobody hands over. (docs/decisions/0010)
bool worker::nap() noexcept {
  constexpr nanos shortest = 50'000;  // about what a wake-up takes
  // A nap that found nothing is followed by a longer one: looking takes 13 us each time.
  constexpr std::uint32_t doublings = 3;
  // ordering: settings.
  if (lone_ || by_seed_ != nullptr || woken_in_vain_ < sched.naps_after.load(relaxed) ||
      naps_ >= sched.naps_in_a_row.load(relaxed) ||  // ordering: as above
      sched.idle().asleep() + 1 >= sched.workers().size() ||
      (is_kept() && sched.work.any())) {  // it lies down, and hands that on
    naps_ = 0;
    return false;
  }
  woke_in_vain();
  const nanos until = monotonic_now() + (shortest << std::min(naps_, doublings));
  // Who waits for a deadline lies down.
  if (sched.next_deadline.load() < until || !sched.idle().settle_to_nap(place, until)) {
    naps_ = 0;
    return false;
  }
  ++naps_;
  if (sched.next_deadline.load() >= until && !inbox_filled_.load() && !sched.work.much()) {
    counters.kernel_waits.add();
    sched.idle().nap(place, until);
    just_woke_ = true;
  }
  sched.idle().get_up(place);
  until_clock_ = 1;
  return true;
}

// Caller: looks, and has found nothing to run.
void worker::rest() noexcept {
  woke_in_vain();
  if (!sched.timers().tidy()) return;  // more to do: look around first
  place.kept = !is_kept() ? ties::none : open_ == pinned_ ? ties::open : ties::bounded;
  if (lie_down()) sleep();
}

// Publishes and looks: I1 and I2 of idle.hpp. False if it has found something to do
// instead, or has made it.
bool worker::lie_down() noexcept {
  const nanos next = sched.next_deadline.load();
  const nanos second = next == never ? never : sched.timers().second_deadline();
  std::uint64_t none_left = 0;
  do {
    sched.idle().lie_down(place, next, second);
    if (sees_work()) {
      stay_awake();
      return false;
    }
    if (next == never && sched.idle().asleep() == sched.workers().size()) sched.deadlocks.look();
    if (!must_end_lock_waits(none_left)) return true;
    stay_awake();
  } while (!ends_lock_waits(none_left));
  return false;
}

void worker::stay_awake() noexcept {
  sched.idle().stay_awake(place);
  if (stuck != nullptr) stuck->somebody_is_awake();
}

// I3.
void worker::sleep() noexcept {
  counters.kernel_waits.add();
  sched.idle().sleep(place, not_before());
  if (stuck != nullptr) stuck->somebody_is_awake();
  just_woke_ = true;
  until_clock_ = 1;
  if (sched.present_watch().knows_io()) {
    sched.next_poll.store(monotonic_now() + poll_interval, relaxed);  // ordering: a hint
  }
}

// Caller: has lain down. Whether it has to get up for a deadlocked run, which waits
// for its stop limit alone. `none_left` is how often workers had got up when no wait
// for a lock was left: if nobody else has since, there is none now. It becomes what
// that count will be once this worker has got up.
bool worker::must_end_lock_waits(std::uint64_t& none_left) noexcept {
  if (!sched.state.deadlocked()) return false;
  const std::uint64_t asleep = sched.idle().all_asleep(sched.workers().size(), monotonic_now());
  if (asleep == 0 || asleep == none_left || !sched.deadlocks.can_only_give_up(asleep)) return false;
  none_left = asleep + 1;
  return true;
}

// Caller: has got up for it. Looks again: another may have seen the same and got up
// before, and a worker that was woken since may run the owners of the locks. False
// if there is nothing to run, so that the worker lies down again.
bool worker::ends_lock_waits(std::uint64_t got_up) noexcept {
  return !sched.deadlocks.can_only_give_up(got_up) || sched.deadlocks.end_lock_waits();
}

}  // namespace vigil::inline VIGIL_ABI::detail
