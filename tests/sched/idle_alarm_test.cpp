#include "base/clock_source.hpp"
#include "sched/idle.hpp"
#include "sched/sleepers.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <thread>

namespace VIGIL_DETAIL {

struct test_access {
  static bool has_alarm(idle_workers& idle) {
    const lock_guard guard(idle.lock_);
    return idle.deputy_ != nullptr;
  }

  // How far ahead an alarm would be set at that time.
  static nanos distance(idle_workers& idle, nanos when) {
    const lock_guard guard(idle.lock_);
    return idle.absences_.distance(when);
  }
};

}  // namespace VIGIL_DETAIL

using namespace vigil::testing_support;
using vigil::detail::futex_watch;
using vigil::detail::idle_workers;
using vigil::detail::monotonic_now;
using vigil::detail::nanos;
using vigil::detail::never;
using vigil::detail::sleeper;
using vigil::detail::test_access;
using vigil::detail::watch_absences;

namespace {

// Whether a deputy stays asleep while the watcher comes and goes.
bool deputy_sleeps_on() {
  two_at_busy_watch s;
  std::atomic<bool> up{false};
  std::thread deputy([&] {
    s.idle.sleep(s.b);
    up.store(true);
  });
  const nanos begun = monotonic_now();
  while (monotonic_now() - begun < 10'000'000) {
    s.leaves_with_alarm();
    lie(s.idle, s.a, never, never);
  }
  while (test_access::has_alarm(s.idle))
    std::this_thread::yield();
  const bool slept_on = s.idle.asleep() == 2 && !up.load();
  if (slept_on) s.idle.wake(s.b);
  deputy.join();
  s.idle.stay_awake(s.a);
  CHECK(s.idle.looking() == 2);
  return slept_on;
}

// A worker is away for long, and the alarm does not ring meanwhile. Calls end(s), which
// ends the absence, and looks whether the next alarms are near.
template <class End>
bool absence_counts(End end) {
  two_at_busy_watch s;
  if (!s.leaves_with_alarm()) return false;
  CHECK(test_access::distance(s.idle, s.left) == watch_absences::far);
  while (monotonic_now() - s.left < 800'000) {
  }
  end(s);
  CHECK(test_access::distance(s.idle, s.left) == watch_absences::near);
  s.idle.stay_awake(s.a);
  s.idle.stay_awake(s.b);
  return true;
}

// The watch that is left is taken over when the alarm rings. That makes the next alarms
// near, since the deputy has slept for longer than promised.
bool deputy_takes_over() {
  two_at_busy_watch s;
  if (!s.leaves_with_alarm()) return false;
  CHECK(s.idle.looking() == 0);
  CHECK(s.idle.leave_to_alarm());
  CHECK(test_access::distance(s.idle, s.left) == watch_absences::far);
  s.idle.sleep(s.b);
  CHECK(monotonic_now() - s.left >= watch_absences::far);
  CHECK(s.idle.looking() == 1);
  CHECK(test_access::distance(s.idle, s.left) == watch_absences::near);
  s.idle.lie_down(s.b, never, never);
  CHECK(s.b.in_watch);
  CHECK_FALSE(s.idle.leave_to_alarm());
  s.idle.stay_awake(s.b);
  s.idle.stop_looking();
  return true;
}

template <class Try>
bool comes_about(Try attempt) {
  for (int i = 0; i < 200; ++i) {
    if (attempt()) return true;
  }
  return false;
}

}  // namespace

TEST_SUITE("idle_workers: the alarm") {
  TEST_CASE("a deputy does not wake beside the watcher for a deadline that follows closely") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    const nanos next = monotonic_now() + hour;
    lie(idle, a, next, next + 100);
    lie(idle, b, next, next + 100);
    CHECK(b.until == never);
    CHECK(b.asked > next + 100);
    CHECK(b.asked <= next + 100'000);
    CHECK(idle.earliest() == next);
    idle.stay_awake(a);
    idle.stop_looking();
    idle.staff_watch();  // an alarm in an hour is none for the watch
    CHECK(idle.asleep() == 0);
    CHECK(idle.looking() == 1);
  }

  TEST_CASE("an alarm that is near is for all deadlines while the watch is free") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    const nanos next = monotonic_now();
    lie(idle, a, next, next + 100);
    lie(idle, b, next, next + 100);
    idle.stay_awake(a);
    idle.stop_looking();
    CHECK(idle.earliest() < 0);
    idle.cover(5);
    idle.staff_watch();
    CHECK(idle.asleep() == 1);
    CHECK(idle.wake_calls() == 0);
    idle.wake_all();
  }

  TEST_CASE("a deputy whose note another thread has woken looks for the reason") {
    two_at_busy_watch s(monotonic_now() + hour);
    std::atomic<bool> signal{false};
    std::atomic<bool> up{false};
    std::thread deputy([&] {
      s.idle.sleep(s.b, 0, [&] { return signal.load(); });
      up.store(true);
    });
    s.b.note.wake();  // for nothing
    signal.store(true);
    s.b.note.wake();
    deputy.join();
    CHECK(up.load());
    CHECK(s.idle.looking() == 1);
    s.idle.stay_awake(s.a);
  }

  TEST_CASE("a watch that is left often is taken over only if it stays free") {
    CHECK(comes_about(deputy_takes_over));
  }

  TEST_CASE("after a long absence alarms are near, however it ended") {
    const auto comes_back = [](two_at_busy_watch& s) { lie(s.idle, s.a, never, never); };
    const auto wakes_the_other = [](two_at_busy_watch& s) { s.idle.wake_one(); };
    CHECK(comes_about([&] { return absence_counts(comes_back); }));
    CHECK(comes_about([&] { return absence_counts(wakes_the_other); }));
  }

  TEST_CASE("a deputy sleeps on while the watcher comes and goes, and then without an alarm") {
    // It gets up if this thread was interrupted for long enough: then once more.
    CHECK(comes_about(deputy_sleeps_on));
  }
}
