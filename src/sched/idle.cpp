#include "sched/idle.hpp"

#include "base/clock_source.hpp"

#include <algorithm>
#include <utility>

namespace VIGIL_DETAIL {

void idle_workers::lie_down(sleeper& s, nanos next, nanos second) noexcept {
  const lock_guard guard(lock_);
  choose_place(s, watcher_ == nullptr);  // first: it may rouse a sleeper, which covers no more
  s.until = never;
  s.asked = never;
  if (next != never) {
    unsigned with_deadline = 0;
    nanos covered = never;
    for (sleeper* other = sleepers_.front(); other != nullptr; other = sleeper_list::next(*other)) {
      if (other->until == never) continue;
      ++with_deadline;
      if (other->until < covered) covered = other->until;
    }
    const bool is_watched = watcher_ != nullptr && !s.in_watch;
    if (covered > next) {
      s.asked = s.until = next;
    } else if (with_deadline < 2 && is_watched && deputy_ == nullptr &&
               second - next <= watch_absences::near) {
      // The watcher most likely takes the second deadline as well.
      deputy_ = &s;
      s.asked = rings_at_ = saturating_add(next, absences_.distance(monotonic_now()));
    } else if (with_deadline < 2) {
      s.asked = s.until = second;
    }
  }
  sleepers_.push_back(s);
  publish();
  asleep_.fetch_add(1);
  looking_.fetch_sub(1);  // last: until here IA2 finds somebody looking
}

// Whether s goes back to sleep, until `until`: it has an alarm that does not call it now.
bool idle_workers::sleeps_on(sleeper& s, nanos& until) noexcept {
  if (s.in_watch) return false;
  const lock_guard guard(lock_);
  const nanos now = monotonic_now();
  if (!s.hook.linked || &s != deputy_ || s.until <= now) return false;
  if (now >= rings_at_) {
    if (watcher_ == nullptr) {
      if (absences_.length(now) >= watch_absences::near) {
        absences_.taken_over();
        return false;
      }
      rings_at_ = absences_.rings_at(now);
    } else if (absences_.length(now) < absences_.distance(now)) {
      rings_at_ = now + absences_.distance(now);
    } else {
      deputy_ = nullptr;
      rings_at_ = never;
    }
    publish();
  }
  s.note.clear();  // of the wake that set the alarm; the caller looks at other wakers' reasons
  until = std::min(rings_at_, s.until);
  return true;
}

void idle_workers::stay_awake(sleeper& s) noexcept {
  watch* left = nullptr;
  {
    const lock_guard guard(lock_);
    left = leave_place(s);
    // A waker may have taken it out already, and counted it as looking.
    if (s.hook.linked) {
      remove(s);
    } else {
      publish();
    }
  }
  if (left != nullptr) left->after_wait();
}

void idle_workers::remove(sleeper& s) noexcept {
  looking_.fetch_add(1);  // first: it will look before it sleeps again
  sleepers_.remove(s);
  ++wake_count_;
  asleep_.fetch_sub(1);
  if (&s == deputy_) {
    if (watcher_ == nullptr) absences_.count(monotonic_now());
    deputy_ = nullptr;
    rings_at_ = never;
  }
  publish();
}

void idle_workers::publish() noexcept {
  nanos earliest = nobody_sleeps;
  for (sleeper* s = sleepers_.front(); s != nullptr; s = sleeper_list::next(*s)) {
    if (earliest == nobody_sleeps || s->until < earliest) earliest = s->until;
  }
  // The alarm is for all deadlines.
  if (watcher_ == nullptr && deputy_ != nullptr) earliest = nobody_sleeps + 1;
  earliest_.store(earliest);
  attended_.store(watcher_ != nullptr  ? attention::watch
                  : deputy_ != nullptr ? attention::alarm
                                       : attention::none);
}

// Sets the alarm of a sleeper, who takes over if nobody comes to the watch until then.
// False if the watch was not left often of late, or nobody sleeps.
bool idle_workers::set_alarm() noexcept {
  if (!absences_.is_busy()) return false;
  const nanos now = monotonic_now();
  if (!absences_.sets_alarm(now)) return false;
  sleeper* found = nullptr;
  for (sleeper* s = sleepers_.front(); s != nullptr; s = sleeper_list::next(*s)) {
    if (!s->in_watch && found == nullptr) found = s;
  }
  if (found == nullptr) return false;
  deputy_ = found;
  rings_at_ = absences_.rings_at(now);
  publish();
  if (found->note.wake()) wake_calls_.add();
  return true;
}

// Called when the watch has become free: an alarm that stands at deadlines to come would
// ring too late for anything else. Its sleeper wakes then all the same.
void idle_workers::forget_late_alarm(nanos now) noexcept {
  if (deputy_ == nullptr || rings_at_ <= saturating_add(now, absences_.distance(now))) return;
  deputy_ = nullptr;
  rings_at_ = never;
}

bool idle_workers::leave_to_alarm() noexcept {
  switch (attended_.load()) {
    case attention::watch:
      return false;
    case attention::alarm:
      return true;
    case attention::none:
      break;
  }
  const lock_guard guard(lock_);
  if (watcher_ != nullptr) return false;
  return deputy_ != nullptr || set_alarm();
}

void idle_workers::rouse(sleeper& s) noexcept {
  remove(s);
  interrupt(s);
}

// The one whose sleep matters least: without a deadline, or with the latest.
sleeper* idle_workers::latest() const noexcept {
  sleeper* found = nullptr;
  for (sleeper* s = sleepers_.front(); s != nullptr; s = sleeper_list::next(*s)) {
    // Among equals, the last to lie down: its cache is the warmest.
    if (found == nullptr || s->until >= found->until) found = s;
  }
  return found;
}

void idle_workers::wake_one_slowly() noexcept {
  const lock_guard guard(lock_);
  if (looking_.load() != 0) return;
  if (sleeper* const s = latest()) rouse(*s);
}

void idle_workers::cover_slowly(nanos deadline) noexcept {
  const lock_guard guard(lock_);
  if (deadline >= earliest_.load() || looking_.load() != 0) return;
  if (watcher_ == nullptr && (deputy_ != nullptr || set_alarm())) return;
  // The one with the latest deadline is woken and lies down again with this
  // one; an earlier one stays, as the deputy.
  sleeper* const s = latest();
  if (s == nullptr) return;
  if (s->in_watch && s->watch->earlier(deadline)) {
    s->until = deadline;
    publish();
    wake_calls_.add();
  } else {
    rouse(*s);
  }
}

void idle_workers::wake(sleeper& s) noexcept {
  const lock_guard guard(lock_);
  if (napper_ == &s) {
    end_nap();
  } else if (s.hook.linked) {
    rouse(s);
  }
}

void idle_workers::choose_place(sleeper& s, bool enters) noexcept {
  s.in_watch = enters;
  if (!enters) {
    s.note.clear();
    return;
  }
  if (deputy_ != nullptr) absences_.count(monotonic_now());  // otherwise no alarm was set
  watcher_ = &s;
  s.watch = watch_;
  watch_->prepare();
}

// Returns the watch that it was in, if any.
watch* idle_workers::leave_place(sleeper& s) noexcept {
  if (!std::exchange(s.in_watch, false)) return nullptr;
  if (s.watch == watch_) {
    watcher_ = nullptr;
    const bool others_sleep = sleepers_.size() > (s.hook.linked ? 1u : 0u);
    if (others_sleep) {  // otherwise there is nobody to set an alarm for
      const nanos now = monotonic_now();
      absences_.begin(now);
      forget_late_alarm(now);
    }
  }
  return std::exchange(s.watch, nullptr);
}

void idle_workers::wait(sleeper& s, nanos until) noexcept {
  if (s.in_watch) {
    s.watch->wait_until(until);
  } else {
    s.note.sleep_until(until);
  }
}

// Caller: holds the lock, so that the sleeper cannot leave its place, nor another
// enter the watch, before it is interrupted.
void idle_workers::interrupt(sleeper& s) noexcept {
  if (s.in_watch ? s.watch->interrupt() : s.note.wake()) wake_calls_.add();
}

bool idle_workers::settle_to_nap(sleeper& s, nanos until) noexcept {
  const lock_guard guard(lock_);
  if (napper_ != nullptr) return false;
  choose_place(s, watcher_ == nullptr);
  publish();
  napper_ = &s;
  nap_until_.store(until);
  return true;
}

void idle_workers::get_up(sleeper& s) noexcept {
  watch* left = nullptr;
  {
    const lock_guard guard(lock_);
    left = leave_place(s);
    if (napper_ == &s) {
      napper_ = nullptr;
      nap_until_.store(nobody_sleeps);
    }
    publish();
  }
  if (left != nullptr) left->after_wait();
}

void idle_workers::end_nap() noexcept {
  sleeper& s = *std::exchange(napper_, nullptr);
  nap_until_.store(nobody_sleeps);
  interrupt(s);
}

void idle_workers::rouse_napper() noexcept {
  const lock_guard guard(lock_);
  if (napper_ != nullptr) end_nap();
}

// A worker that looks finds the watch free when it lies down.
void idle_workers::staff_watch_slowly() noexcept {
  const lock_guard guard(lock_);
  if (watcher_ != nullptr || deputy_ != nullptr || looking_.load() != 0) return;
  if (set_alarm()) return;
  if (sleeper* const s = latest()) rouse(*s);
}

void idle_workers::change_watch(watch& w) noexcept {
  const lock_guard guard(lock_);
  watch_ = &w;
  watcher_ = nullptr;
  const nanos now = monotonic_now();
  absences_.begin(now);
  forget_late_alarm(now);
  publish();
  if (napper_ != nullptr && napper_->in_watch) {
    end_nap();
    return;
  }
  for (sleeper* s = sleepers_.front(); s != nullptr; s = sleeper_list::next(*s)) {
    if (!s->in_watch) continue;
    rouse(*s);
    return;
  }
  // A worker that sleeps elsewhere may have to go there: nobody is in it.
  sleeper* const s = latest();
  if (s != nullptr && looking_.load() == 0) rouse(*s);
}

std::uint64_t idle_workers::all_asleep(std::size_t workers, nanos now) noexcept {
  const lock_guard guard(lock_);
  if (sleepers_.size() != workers) return 0;
  for (sleeper* s = sleepers_.front(); s != nullptr; s = sleeper_list::next(*s)) {
    if (s->until <= now) return 0;
  }
  return wake_count_;
}

std::uint64_t idle_workers::wake_count() noexcept {
  const lock_guard guard(lock_);
  return wake_count_;
}

void idle_workers::wake_all() noexcept {
  const lock_guard guard(lock_);
  if (napper_ != nullptr) end_nap();
  while (sleeper* const s = sleepers_.front())
    rouse(*s);
}

}  // namespace VIGIL_DETAIL
