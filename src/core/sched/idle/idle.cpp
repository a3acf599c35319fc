#include "core/sched/idle/idle.hpp"

#include "core/base/clock_source.hpp"

#include <algorithm>
#include <utility>

namespace VIGIL_DETAIL {

void idle_workers::lie_down(sleeper& s, nanos next, nanos second) noexcept {
  const lock_guard guard(lock_);
  if (watched_.load()) {
    s.own_note.clear();
  } else {
    watched_.store(true);
    s.asleep_in = watch_;
    watch_->prepare();
  }
  s.asked = s.until = choose_deadline(next, second);
  sleepers_.push_back(s);
  publish();
  asleep_.fetch_add(1);
  looking_.fetch_sub(1);  // last: until here IA2 finds somebody looking
}

// The next deadline, if no other sleeper has it. Otherwise the second one, if only one
// has a deadline: then the worker that wakes for the first need wake nobody for the
// second.
nanos idle_workers::choose_deadline(nanos next, nanos second) const noexcept {
  const nanos first = earliest_.load();
  if (first == nobody_sleeps || next < first) return next;
  unsigned with_deadline = 0;
  for (sleeper* s = sleepers_.front(); s != nullptr; s = sleeper_list::next(*s)) {
    if (s->until != never) ++with_deadline;
  }
  return with_deadline < 2 ? second : never;
}

void idle_workers::stay_awake(sleeper& s) noexcept {
  watch* left = nullptr;
  {
    const lock_guard guard(lock_);
    // A waker may have taken it out already, and counted it as looking.
    if (s.hook.linked) remove(s);
    left = std::exchange(s.asleep_in, nullptr);
    if (left == watch_) watched_.store(false);
  }
  if (left != nullptr) left->after_wait();
  overseen.somebody_is_awake();
}

void idle_workers::remove(sleeper& s) noexcept {
  looking_.fetch_add(1);  // first: it will look before it sleeps again
  sleepers_.remove(s);
  wake_count_.fetch_add(1);
  asleep_.fetch_sub(1);
  publish();
}

void idle_workers::publish() noexcept {
  nanos earliest = nobody_sleeps;
  for (sleeper* s = sleepers_.front(); s != nullptr; s = sleeper_list::next(*s)) {
    if (earliest == nobody_sleeps || s->until < earliest) earliest = s->until;
  }
  earliest_.store(earliest);
}

void idle_workers::sleep(sleeper& s, nanos not_before) noexcept {
  const nanos until = std::max(s.asked, not_before);
  if (s.asleep_in != nullptr) {
    s.asleep_in->wait_until(until);
  } else {
    s.own_note.sleep_until(until);
  }
  stay_awake(s);
}

// Caller: holds the lock, so that the sleeper cannot leave its place, nor another
// enter the watch, before it is interrupted.
void idle_workers::rouse(sleeper& s) noexcept {
  remove(s);
  if (s.asleep_in != nullptr ? s.asleep_in->interrupt() : s.own_note.wake()) wake_calls_.add();
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

// Whether the overseer sees to what is left now. If it does not look it is called once
// something was left several times in a row before, each within one of its looks of the
// one before: then its looks cost less than as many wake-ups.
bool idle_workers::leave_to_overseer() noexcept {
  if (overseen.looks()) return true;
  const nanos now = monotonic_now();
  left_in_a_row_ = now - left_at_ < tuning::longest_look ? left_in_a_row_ + 1 : 0;
  left_at_ = now;
  return left_in_a_row_ >= traffic_from_ && overseen.call();
}

bool idle_workers::wake_slowly(bool is_left) noexcept {
  const lock_guard guard(lock_);
  if (looking_.load() != 0 || sleepers_.empty()) return false;
  if (is_left && leave_to_overseer()) return true;
  rouse(*latest());
  return false;
}

void idle_workers::cover_slowly(nanos deadline) noexcept {
  const lock_guard guard(lock_);
  if (deadline >= earliest_.load() || looking_.load() != 0) return;
  // The watch is free: its worker is in user code.
  if (!watched_.load() && leave_to_overseer()) return;
  // The one with the latest deadline is woken and lies down again with this one.
  sleeper* const s = latest();
  if (s->asleep_in != nullptr && s->asleep_in->earlier(deadline)) {
    s->until = deadline;
    publish();
    wake_calls_.add();
  } else {
    rouse(*s);
  }
}

void idle_workers::wake(sleeper& s) noexcept {
  const lock_guard guard(lock_);
  if (s.hook.linked) rouse(s);
}

// A worker that sleeps elsewhere may have to go there, so all of them look.
void idle_workers::change_watch(watch& w) noexcept {
  {
    const lock_guard guard(lock_);
    watch_ = &w;
    watched_.store(false);
  }
  wake_all();
}

std::uint64_t idle_workers::all_asleep(std::size_t workers, nanos now) noexcept {
  const lock_guard guard(lock_);
  return sleepers_.size() == workers && earliest_.load() > now ? wake_count_.load() : 0;
}

void idle_workers::wake_all() noexcept {
  const lock_guard guard(lock_);
  while (sleeper* const s = sleepers_.front())
    rouse(*s);
}

}  // namespace VIGIL_DETAIL
