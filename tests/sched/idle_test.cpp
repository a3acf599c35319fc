#include "sched/idle.hpp"

#include "base/clock_source.hpp"
#include "support/in_runtime.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

namespace vigil::inline VIGIL_ABI::detail {

struct test_access {
  static bool has_alarm(idle_workers& idle) {
    const lock_guard guard(idle.lock_);
    return idle.deputy_ != nullptr;
  }

  // How far ahead an alarm would be set at that time.
  static nanos distance(idle_workers& idle, nanos when) {
    const lock_guard guard(idle.lock_);
    return idle.distance_.at(when);
  }
};

}  // namespace vigil::inline VIGIL_ABI::detail

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::detail::alarm_distance;
using vigil::detail::futex_watch;
using vigil::detail::idle_workers;
using vigil::detail::monotonic_now;
using vigil::detail::nanos;
using vigil::detail::never;
using vigil::detail::sleeper;
using vigil::detail::test_access;
using vigil::detail::ties;

namespace {

constexpr nanos hour = 3'600'000'000'000;

// Lies down without sleeping: the part of a sleep that others see.
void lie(idle_workers& idle, sleeper& s, nanos next, nanos second) {
  idle.start_looking();
  idle.lie_down(s, next, second);
}

// Whether a deputy stays asleep while the watcher comes and goes.
bool deputy_sleeps_on() {
  futex_watch watch;
  idle_workers idle(watch);
  idle.leaves_before_alarm = 0;
  sleeper a;
  sleeper b;
  lie(idle, a, never, never);
  lie(idle, b, never, never);
  std::atomic<bool> up{false};
  std::thread deputy([&] {
    idle.sleep(b);
    up.store(true);
  });
  const nanos begun = monotonic_now();
  while (monotonic_now() - begun < 10'000'000) {
    idle.stay_awake(a);
    idle.stop_looking();
    idle.staff_watch();
    lie(idle, a, never, never);
  }
  while (test_access::has_alarm(idle))
    std::this_thread::yield();
  const bool slept_on = idle.asleep() == 2 && !up.load();
  if (slept_on) idle.wake(b);
  deputy.join();
  idle.stay_awake(a);
  CHECK(idle.looking() == 2);
  return slept_on;
}

// A worker is away from the watch for long, and another one has an alarm that does not
// ring meanwhile. Calls end(idle, a), which ends the absence, and looks whether the next
// alarms are near. False if this thread lost its processor, so that no alarm was set.
template <class End>
bool absence_counts(End end) {
  futex_watch watch;
  idle_workers idle(watch);
  idle.leaves_before_alarm = 0;
  sleeper a;
  sleeper b;
  lie(idle, a, never, never);
  lie(idle, b, never, never);
  idle.stay_awake(a);
  const nanos left = monotonic_now();
  idle.stop_looking();
  idle.staff_watch();
  if (idle.asleep() == 0) return false;
  CHECK(test_access::distance(idle, left) == alarm_distance::far);
  while (monotonic_now() - left < 700'000) {
  }
  end(idle, a);
  CHECK(test_access::distance(idle, left) == alarm_distance::near);
  idle.stay_awake(a);
  idle.stay_awake(b);
  return true;
}

template <class Try>
bool comes_about(Try attempt) {
  for (int i = 0; i < 200; ++i) {
    if (attempt()) return true;
  }
  return false;
}

// Whether a watch that is left is taken over when the alarm rings. That makes the next
// alarms near, since the deputy has slept for longer than promised.
bool deputy_takes_over() {
  futex_watch watch;
  idle_workers idle(watch);
  idle.leaves_before_alarm = 0;
  sleeper a;
  sleeper b;
  lie(idle, a, never, never);
  lie(idle, b, never, never);
  const nanos left = monotonic_now();
  idle.stay_awake(a);
  idle.stop_looking();  // a has found something
  idle.staff_watch();
  if (idle.asleep() == 0) return false;
  CHECK(idle.looking() == 0);
  CHECK(idle.leave_to_alarm());
  CHECK(test_access::distance(idle, left) == alarm_distance::far);
  idle.sleep(b);
  CHECK(monotonic_now() - left >= alarm_distance::far);
  CHECK(idle.looking() == 1);
  CHECK(test_access::distance(idle, left) == alarm_distance::near);
  idle.lie_down(b, never, never);
  CHECK(b.in_watch);
  CHECK_FALSE(idle.leave_to_alarm());
  idle.stay_awake(b);
  idle.stop_looking();
  return true;
}

}  // namespace

TEST_SUITE("idle_workers") {
  // Node, libuv: poll timeout: no kernel sleep while there is work, none without
  // timers.
  TEST_CASE("the first sleeps to the next deadline, a deputy to the second, others for ever") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    sleeper c;
    lie(idle, a, 100, 200'000);
    lie(idle, b, 100, 200'000);
    lie(idle, c, 100, 200'000);
    CHECK(a.until == 100);
    CHECK(b.until == 200'000);
    CHECK(c.until == never);
    CHECK(a.in_watch);
    CHECK_FALSE(b.in_watch);
    CHECK_FALSE(c.in_watch);
    CHECK(idle.asleep() == 3);
    CHECK(idle.looking() == 0);
    CHECK(idle.earliest() == 100);
    for (sleeper* const s : {&a, &b, &c})
      idle.stay_awake(*s);
    CHECK(idle.asleep() == 0);
    CHECK(idle.looking() == 3);
    CHECK(idle.earliest() == idle_workers::nobody_sleeps);
  }

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
    futex_watch watch;
    idle_workers idle(watch);
    idle.leaves_before_alarm = 0;
    sleeper a;
    sleeper b;
    lie(idle, a, monotonic_now() + hour, monotonic_now() + hour);
    lie(idle, b, monotonic_now() + hour, monotonic_now() + hour);
    std::atomic<bool> signal{false};
    std::atomic<bool> up{false};
    std::thread deputy([&] {
      idle.sleep(b, 0, [&] { return signal.load(); });
      up.store(true);
    });
    b.note.wake();  // for nothing
    signal.store(true);
    b.note.wake();
    deputy.join();
    CHECK(up.load());
    CHECK(idle.looking() == 1);
    idle.stay_awake(a);
  }

  // Node, libuv: poll timeout: no kernel sleep while there is work, none without
  // timers.
  TEST_CASE("without a deadline no worker sleeps to one") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    lie(idle, a, never, never);
    lie(idle, b, never, never);
    CHECK(a.until == never);
    CHECK(b.until == never);
    CHECK(idle.earliest() == never);
    idle.stay_awake(a);
    idle.stay_awake(b);
  }

  TEST_CASE("wake_one takes the sleeper whose sleep matters least") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    sleeper c;
    lie(idle, a, 100, 200'000);
    lie(idle, b, 100, 200'000);
    lie(idle, c, 100, 200'000);
    idle.wake_one();
    CHECK_FALSE(c.hook.linked);
    CHECK(idle.asleep() == 2);
    CHECK(idle.looking() == 1);
    idle.wake_one();  // somebody is already looking
    CHECK(idle.asleep() == 2);
    idle.stop_looking();
    idle.wake_one();
    CHECK_FALSE(b.hook.linked);
    CHECK(a.hook.linked);
    idle.stop_looking();
    idle.wake_all();
    CHECK(idle.asleep() == 0);
  }

  TEST_CASE("work is handed on to the worker with the fewest duties, and never to an equal") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper open;
    sleeper first;
    sleeper second;
    open.kept = ties::open;
    first.kept = ties::bounded;
    second.kept = ties::bounded;
    lie(idle, open, 100, 200);
    lie(idle, first, 100, 200);
    lie(idle, second, 100, 200);
    CHECK(idle.hand_on(second));
    CHECK_FALSE(open.hook.linked);
    CHECK(idle.hand_on(second));  // to the same worker, which looks
    CHECK(idle.asleep() == 2);
    idle.lie_down(open, never, never);
    CHECK_FALSE(idle.hand_on(open));
    idle.stay_awake(open);
    idle.stop_looking();
    CHECK_FALSE(idle.hand_on(second));
    idle.wake_all();
  }

  TEST_CASE("cover makes sure that some worker sleeps no longer than to the deadline") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    lie(idle, a, 100, 200);
    lie(idle, b, 100, 200);
    idle.cover(150);  // a wakes before that anyway
    CHECK(idle.asleep() == 2);
    idle.cover(50);
    CHECK(idle.asleep() == 1);
    CHECK(a.hook.linked);  // the earlier one stays, as the deputy
    idle.stay_awake(b);
    idle.lie_down(b, 50, 100);
    CHECK(b.until == 50);
    CHECK(idle.earliest() == 50);
    idle.stay_awake(a);
    idle.stay_awake(b);
  }

  TEST_CASE("cover wakes no worker if none is asleep or one is looking") {
    futex_watch watch;
    idle_workers idle(watch);
    idle.cover(5);
    sleeper a;
    lie(idle, a, never, never);
    idle.start_looking();
    idle.cover(5);
    CHECK(idle.asleep() == 1);
    CHECK(idle.wake_calls() == 0);
    idle.stop_looking();
    idle.cover(5);
    CHECK(idle.asleep() == 0);
  }

  TEST_CASE("a sleeper that was woken returns, in the watch or on its note") {
    futex_watch watch;
    idle_workers idle(watch);
    std::atomic<int> awake{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        sleeper s;
        lie(idle, s, monotonic_now() + hour, monotonic_now() + 2 * hour);
        idle.sleep(s);
        awake.fetch_add(1);
        idle.stop_looking();
      });
    }
    while (idle.asleep() != 3)
      std::this_thread::yield();
    for (int n = 1; n <= 3; ++n) {
      while (idle.looking() != 0)
        std::this_thread::yield();
      idle.wake_one();
      while (awake.load() != n)
        std::this_thread::yield();
    }
    for (auto& t : threads)
      t.join();
    CHECK(idle.asleep() == 0);
    CHECK(idle.looking() == 0);
  }

  // Node, libuv: poll timeout: no kernel sleep while there is work, none without timers.
  TEST_CASE("a deadline ends the sleep, never early") {
    futex_watch watch;
    idle_workers idle(watch);
    for (int i = 0; i < 20; ++i) {
      sleeper s;
      const nanos deadline = monotonic_now() + i * 50'000;
      lie(idle, s, deadline, never);
      idle.sleep(s);
      CHECK(monotonic_now() >= deadline);
      CHECK(idle.stop_looking());
    }
  }

  TEST_CASE("a free watch is taken over by a sleeper, unless a worker is looking") {
    futex_watch watch;
    idle_workers idle(watch);
    sleeper a;
    sleeper b;
    idle.staff_watch();  // nobody sleeps
    lie(idle, a, never, never);
    lie(idle, b, never, never);
    idle.staff_watch();  // a is there
    CHECK(idle.asleep() == 2);
    CHECK(idle.wake_calls() == 0);
    idle.wake(a);
    idle.stay_awake(a);
    idle.staff_watch();  // a looks, and goes back if it finds nothing
    CHECK(idle.asleep() == 1);
    idle.stop_looking();  // a has found something
    idle.staff_watch();
    CHECK(idle.looking() == 1);  // b is roused
    idle.stay_awake(b);
    idle.lie_down(b, never, never);
    CHECK(b.in_watch);
    idle.stay_awake(b);
    idle.stop_looking();
  }

  TEST_CASE("a watch that is left often is taken over only if it stays free") {
    // Nothing is left to the alarm if this thread lost its processor: then once more.
    CHECK(comes_about(deputy_takes_over));
  }

  TEST_CASE("after a long absence alarms are near, however it ended") {
    const auto comes_back = [](idle_workers& idle, sleeper& a) { lie(idle, a, never, never); };
    const auto wakes_the_other = [](idle_workers& idle, sleeper&) { idle.wake_one(); };
    CHECK(comes_about([&] { return absence_counts(comes_back); }));
    CHECK(comes_about([&] { return absence_counts(wakes_the_other); }));
  }

  TEST_CASE("a deputy sleeps on while the watcher comes and goes, and then without an alarm") {
    // It gets up if this thread was interrupted for long enough: then once more.
    CHECK(comes_about(deputy_sleeps_on));
  }

  TEST_CASE("a worker with pinned fibers leaves a busy watch to one without") {
    futex_watch watch;
    idle_workers idle(watch);
    idle.leaves_before_alarm = 0;
    sleeper tied;
    sleeper other;
    tied.kept = ties::bounded;
    const nanos next = monotonic_now() + hour;
    lie(idle, tied, next, never);
    CHECK(tied.in_watch);  // nobody else sleeps
    lie(idle, other, next, never);
    CHECK_FALSE(tied.hook.linked);  // called out
    CHECK(idle.earliest() == next);
    idle.stay_awake(tied);
    idle.lie_down(tied, next, never);
    CHECK_FALSE(tied.in_watch);
    CHECK_FALSE(other.hook.linked);  // sent there
    CHECK(idle.earliest() == next);
    idle.stay_awake(other);
    idle.lie_down(other, next, never);
    CHECK(other.in_watch);
    CHECK(idle.asleep() == 2);
    idle.stay_awake(tied);
    idle.stay_awake(other);
  }

  // Asio: wake-up lost while the waiting place changes.
  TEST_CASE("when the watch changes its sleeper comes out, and the next one lies down in the new") {
    futex_watch first;
    futex_watch second;
    idle_workers idle(first);
    sleeper a;
    sleeper b;
    lie(idle, a, never, never);
    lie(idle, b, never, never);
    std::thread sleeps([&] { idle.sleep(a); });
    idle.change_watch(second);
    sleeps.join();
    CHECK(idle.asleep() == 1);
    CHECK_FALSE(b.in_watch);
    idle.lie_down(a, never, never);
    CHECK(a.in_watch);
    CHECK(a.watch == &second);
    std::thread sleeps_again([&] { idle.sleep(a); });
    idle.wake(a);
    sleeps_again.join();
    idle.stay_awake(b);
    CHECK(idle.looking() == 2);
  }

  // Node, libuv: poll timeout: no kernel sleep while there is work, none without
  // timers.
  TEST_CASE("additions that race lying down are never lost") {
    // The protocol at the head of idle.hpp, with one counter as the queue.
    futex_watch watch;
    idle_workers idle(watch);
    std::atomic<int> work{0};
    std::atomic<int> done{0};
    const int total = rounds(100'000);
    const auto take = [&] {
      int n = work.load();
      while (n > 0) {
        if (work.compare_exchange_weak(n, n - 1)) return true;
      }
      return false;
    };
    std::vector<std::thread> workers;
    for (int i = 0; i < 2; ++i) {
      workers.emplace_back([&] {
        sleeper s;
        idle.start_looking();
        while (done.load() < total) {
          if (take()) {
            if (idle.stop_looking() && work.load() > 0) idle.wake_one();
            if (done.fetch_add(1) + 1 == total) idle.wake_all();
            idle.start_looking();
            continue;
          }
          idle.lie_down(s, never, never);
          if (work.load() > 0 || done.load() >= total) {
            idle.stay_awake(s);
          } else {
            idle.sleep(s);
          }
        }
        idle.stop_looking();
        idle.wake_all();
      });
    }
    for (int i = 0; i < total; ++i) {
      work.fetch_add(1);
      idle.wake_one();
      if (i % 64 == 0) std::this_thread::yield();
    }
    for (auto& t : workers)
      t.join();
    CHECK(done.load() == total);
  }
}

TEST_SUITE("alarm_distance") {
  constexpr nanos us = 1'000;

  TEST_CASE("it is far as long as absences are short") {
    alarm_distance d;
    nanos now = hour;
    for (int i = 0; i < 100'000; ++i) {
      now += 120 * us;
      d.note_absence(now, 100 * us);
      CHECK(d.at(now) == alarm_distance::far);
    }
  }

  TEST_CASE("for a watch that is left now and then it is near") {
    const alarm_distance d;
    CHECK(d.at(hour, true) == alarm_distance::far);
    CHECK(d.at(hour, false) == alarm_distance::near);
  }

  TEST_CASE("an alarm rings that far after the watch was left, or soon") {
    alarm_distance d;
    CHECK(d.rings_at(hour, hour) == hour + alarm_distance::far);
    CHECK(d.rings_at(hour, hour + 400 * us) == hour + alarm_distance::far);
    CHECK(d.rings_at(hour, hour + 400 * us, false) == hour + 425 * us);
    d.note_absence(hour, 50'000 * us);
    CHECK(d.rings_at(hour, hour + 10 * us) == hour + alarm_distance::near);
  }

  TEST_CASE("after long absences it is near, until the late part is one in 200 of all time") {
    alarm_distance d;
    const nanos now = hour;
    d.note_absence(now, 50'000 * us);  // of which 600 us were late; 500 of them at once
    CHECK(d.at(now) == alarm_distance::near);
    CHECK(d.at(now + 200 * 100 * us - 1) == alarm_distance::near);
    CHECK(d.at(now + 200 * 100 * us) == alarm_distance::far);
  }

  TEST_CASE("absences that are long while it is near make nothing late") {
    alarm_distance d;
    const nanos now = hour;
    d.note_absence(now, 50'000 * us);
    for (int i = 0; i < 10; ++i)
      d.note_absence(now + i * us, 50'000 * us);
    CHECK(d.at(now + 200 * 100 * us) == alarm_distance::far);
  }

  TEST_CASE("however long absences are, late parts are one in 200 of all time") {
    for (const nanos length : {110 * us, 440 * us, 600 * us, 5'000 * us}) {
      alarm_distance d;
      const nanos begun = hour;
      nanos now = begun;
      nanos late = 0;
      for (int i = 0; i < 10'000; ++i) {
        now += length;
        const nanos part = std::min(length - 100 * us, 500 * us);
        if (d.at(now) == alarm_distance::far) late += part;
        d.note_absence(now, length);
        CHECK(late <= 500 * us + part + (now - begun) / 200);
      }
      CHECK(late >= (now - begun) / 400);
    }
  }
}
