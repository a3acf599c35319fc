// Who sleeps and who is woken: what was added or armed never lies there while
// everybody sleeps.
//
// First the protocol of idle.hpp by itself: threads that do what workers do
// without a fiber, against threads that add work or lower a deadline. Then whole
// programs on two workers.
#include "sched/idle.hpp"

#include "base/clock_source.hpp"
#include "base/futex.hpp"
#include "base/spinlock.hpp"
#include "programs.hpp"
#include "prove.hpp"
#include "sched/fiber.hpp"
#include "sched/park.hpp"
#include "sched/scheduler.hpp"

#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using vigil::internal::futex_watch;
using vigil::internal::idle_workers;
using vigil::internal::lock_guard;
using vigil::internal::lock_rank;
using vigil::internal::monotonic_now;
using vigil::internal::nanos;
using vigil::internal::never;
using vigil::internal::sleeper;
using vigil::internal::spinlock;
using vigil::internal::watch;

using programs::strict_workers;
using programs::turnstile;

namespace {

constexpr nanos start_of_clock = 1'000'000'000;
constexpr nanos soon = start_of_clock + 100;
constexpr nanos late = start_of_clock + 1000;

// A watch whose timer can be set from outside, as one over a timerfd.
class timer_watch final : public watch {
 public:
  void prepare() noexcept override {
    moved_.store(never);
    word_.store(0);
  }

  void wait_until(nanos deadline) noexcept override {
    for (;;) {
      const std::uint32_t seen = word_.load();
      if ((seen & interrupted) != 0) return;
      const nanos until = std::min(deadline, moved_.load());
      if (until != never && monotonic_now() >= until) return;
      vigil::internal::futex_wait(word_, seen, until);
    }
  }

  bool interrupt() noexcept override {
    word_.fetch_or(interrupted);
    vigil::internal::futex_wake_one(word_);
    return true;
  }

  bool earlier(nanos deadline) noexcept override {
    nanos seen = moved_.load();
    while (deadline < seen && !moved_.compare_exchange_weak(seen, deadline)) {
    }
    word_.fetch_add(2);
    vigil::internal::futex_wake_one(word_);
    return true;
  }

 private:
  static constexpr std::uint32_t interrupted = 1;

  std::atomic<nanos> moved_{never};
  vigil::internal::futex_word word_{0};
};

// What is left of a scheduler if its fibers are numbers: pieces of work, a
// deadline, and the workers' way to sleep (worker::run, stop_looking, rest).
template <class Watch = futex_watch>
struct small_scheduler {
  Watch place_of_watcher;
  idle_workers idle{place_of_watcher};
  std::atomic<int> work{0};
  std::atomic<nanos> next_deadline{never};
  std::atomic<nanos> entries[2] = {never, never};
  spinlock heap_lock{lock_rank::timer_heap};
  std::atomic<bool> quit{false};
  sleeper places[3];

  void add() {
    work.fetch_add(1);  // A1
    idle.wake_one();    // A2, A3
  }

  // S1 of timer_service.hpp: the entry first, then next_deadline; only who
  // lowers that looks who sleeps.
  void arm(unsigned which, nanos deadline) {
    entries[which].store(deadline);
    nanos seen = next_deadline.load();
    while (deadline < seen) {
      if (next_deadline.compare_exchange_weak(seen, deadline)) {
        idle.cover(deadline);
        return;
      }
    }
  }

  nanos earliest_entry(unsigned& which) {
    nanos earliest = never;
    for (unsigned i = 0; i < 2; ++i) {
      const nanos d = entries[i].load();
      if (d < earliest) {
        earliest = d;
        which = i;
      }
    }
    return earliest;
  }

  void publish() {
    unsigned which = 0;
    for (;;) {
      nanos seen = next_deadline.load();
      const nanos next = earliest_entry(which);
      if (next != seen && !next_deadline.compare_exchange_strong(seen, next)) continue;
      if (earliest_entry(which) == next) return;
    }
  }

  void end() {
    quit.store(true);
    idle.wake_all();
  }

  bool take_work() {
    int seen = work.load();
    while (seen != 0) {
      if (work.compare_exchange_weak(seen, seen - 1)) return true;
    }
    return false;
  }

  bool take_deadline() {
    const nanos next = next_deadline.load();
    if (next == never || monotonic_now() < next) return false;
    const lock_guard guard(heap_lock);
    unsigned which = 0;
    const nanos due = earliest_entry(which);
    const bool is_due = due != never && monotonic_now() >= due;
    if (is_due) entries[which].store(never);
    publish();  // an arming may have lowered it late, for an entry that is gone
    return is_due;
  }

  // `found` runs what was found; it is user code.
  template <class Work, class Fire>
  void worker(unsigned me, Work&& work_found, Fire&& deadline_found) {
    sleeper& place = places[me];
    idle.start_looking();
    for (;;) {
      if (take_deadline()) {
        stop_looking();
        deadline_found();
        idle.start_looking();
        continue;
      }
      if (take_work()) {
        stop_looking();
        work_found();
        idle.start_looking();
        continue;
      }
      if (quit.load()) break;
      const nanos next = next_deadline.load();
      idle.lie_down(
          place, next, next == never ? never : std::max(entries[0].load(), entries[1].load()));
      if (next_deadline.load() < idle.earliest() || work.load() != 0 || quit.load()) {
        idle.stay_awake(place);
      } else {
        idle.sleep(place);
      }
    }
    idle.stop_looking();
  }

  void stop_looking() {
    const bool last = idle.stop_looking();
    if (idle.asleep() == 0) return;
    if (last && work.load() != 0) idle.wake_one();
    idle.cover(next_deadline.load());
  }
};

using futex_scheduler = small_scheduler<futex_watch>;

void nothing() {}

// Each piece of work keeps its worker busy until all of them run.
void burst_of_two() {
  auto s = std::make_unique<futex_scheduler>();
  std::atomic<int> running{0};
  const auto busy = [&] {
    running.fetch_add(1);
    model::wait_until([&] { return running.load() == 2; });
    s->end();
  };
  std::thread other([&] { s->worker(1, busy, nothing); });
  std::thread adder([&] {
    s->add();
    s->add();
  });
  s->worker(0, busy, nothing);
  adder.join();
  other.join();
}

// The same when three workers sleep already.
void burst_of_three() {
  auto s = std::make_unique<futex_scheduler>();
  std::atomic<int> running{0};
  const auto busy = [&] {
    running.fetch_add(1);
    model::wait_until([&] { return running.load() == 3; });
  };
  std::thread workers[3];
  for (unsigned i = 0; i < 3; ++i) {
    workers[i] = std::thread([&, i] { s->worker(i, busy, nothing); });
  }
  model::wait_until([&] { return s->idle.asleep() == 3; });
  {
    const model::window w;
    for (int i = 0; i < 3; ++i)
      s->add();
    model::wait_until([&] { return running.load() == 3; });
  }
  s->end();
  for (std::thread& t : workers)
    t.join();
}

// One in which nobody else may be.
class watch_of_one final : public watch {
 public:
  void prepare() noexcept override { inner_.prepare(); }

  void wait_until(nanos deadline) noexcept override {
    model::require(inside_.fetch_add(1) == 0, "one worker is in the watch");
    inner_.wait_until(deadline);
    inside_.fetch_sub(1);
  }

  bool interrupt() noexcept override { return inner_.interrupt(); }

  bool is_staffed() const { return inside_.load(std::memory_order_relaxed) != 0; }

 private:
  futex_watch inner_;
  std::atomic<int> inside_{0};
};

// Two workers sleep, one of them in the watch that is changed, and are woken.
void change_of_the_watch() {
  const auto before = std::make_unique<watch_of_one>();
  const auto after = std::make_unique<watch_of_one>();
  const auto idle = std::make_unique<idle_workers>(*before);
  std::atomic<bool> quit{false};
  sleeper places[2];
  std::thread workers[2];
  for (unsigned i = 0; i < 2; ++i) {
    workers[i] = std::thread([&, i] {
      idle->start_looking();
      while (!quit.load()) {
        idle->lie_down(places[i], never, never);
        if (quit.load()) {
          idle->stay_awake(places[i]);
        } else {
          idle->sleep(places[i]);
        }
      }
      idle->stop_looking();
    });
  }
  model::wait_until([&] { return idle->asleep() == 2; });
  {
    const model::window w;
    idle->change_watch(*after);
    idle->wake(places[0]);
    idle->wake(places[1]);
    model::wait_until([&] { return after->is_staffed() && idle->asleep() == 2; });
  }
  quit.store(true);
  idle->wake_all();
  for (std::thread& t : workers)
    t.join();
}

// A time of the explorer's clock that a thread left for another. No access to
// memory as far as the explorer is concerned.
class moment {
 public:
  void comes() {
    const nanos now = monotonic_now();
    set(now);
  }

  __attribute__((no_sanitize("thread"), noinline)) nanos when() const { return when_; }

 private:
  __attribute__((no_sanitize("thread"), noinline)) void set(nanos to) { when_ = to; }

  nanos when_ = never;
};

// The only worker may sleep already, to `asleep_to`.
template <class Watch>
void deadline_is_kept(nanos asleep_to) {
  auto s = std::make_unique<small_scheduler<Watch>>();
  if (asleep_to != never) s->arm(1, asleep_to);
  moment armed;
  std::thread armer([&] {
    s->arm(0, soon);
    armed.comes();
  });
  bool first = true;
  s->worker(0, nothing, [&] {
    if (!std::exchange(first, false)) return;
    model::require(model::now() >= soon, "never early");
    model::require(model::now() == soon || armed.when() >= soon, "in time");
    s->end();
  });
  armer.join();
}

template <class Watch>
void two_deadlines_are_kept() {
  auto s = std::make_unique<small_scheduler<Watch>>();
  moment armed;
  std::thread first([&] {
    s->arm(0, soon);
    armed.comes();
  });
  std::thread second([&] { s->arm(1, late); });
  int kept = 0;
  s->worker(0, nothing, [&] {
    model::require(kept != 0 || model::now() == soon || armed.when() >= soon, "in time");
    if (++kept == 2) s->end();
  });
  first.join();
  second.join();
}

// P7: the work's user is busy until the deadline has been kept.
template <class Watch>
void work_and_deadline() {
  auto s = std::make_unique<small_scheduler<Watch>>();
  std::atomic<bool> kept{false};
  const auto busy = [&] { model::wait_until([&] { return kept.load(); }); };
  const auto keep = [&] {
    kept.store(true);
    s->end();
  };
  std::thread other([&] { s->worker(1, busy, keep); });
  std::thread outside([&] {
    s->add();
    s->arm(0, soon);
  });
  s->worker(0, busy, keep);
  outside.join();
  other.join();
}

// P7: whoever keeps the first deadline is busy until the second has been kept.
// The second is armed by `armer`, which runs on a thread of its own.
template <class Watch>
void second_deadline_is_kept(bool armed_before) {
  auto s = std::make_unique<small_scheduler<Watch>>();
  s->arm(0, soon);
  if (armed_before) s->arm(1, late);
  std::atomic<int> kept{0};
  const auto keep = [&] {
    if (kept.fetch_add(1) == 0) {
      model::wait_until([&] { return kept.load() == 2; });
    } else {
      s->end();
    }
  };
  std::thread other([&] { s->worker(1, nothing, keep); });
  std::thread armer;
  if (!armed_before) armer = std::thread([&] { s->arm(1, late); });
  s->worker(0, nothing, keep);
  if (!armed_before) armer.join();
  other.join();
}

}  // namespace

// --- the protocol by itself

TEST_CASE("idle: work added as the only worker lies down is found") {
  prove(
      "idle: 1 worker, 1 adder",
      [] {
        auto s = std::make_unique<futex_scheduler>();
        std::thread adder([&] { s->add(); });
        s->worker(
            0, [&] { s->end(); }, nothing);
        adder.join();
      },
      also::unbounded);
}

TEST_CASE("idle: of two adders each finds the worker awake or wakes it") {
  prove("idle: 1 worker, 2 adders", [] {
    auto s = std::make_unique<futex_scheduler>();
    std::thread first([&] { s->add(); });
    std::thread second([&] { s->add(); });
    int taken = 0;
    s->worker(
        0,
        [&] {
          if (++taken == 2) s->end();
        },
        nothing);
    first.join();
    second.join();
  });
}

TEST_CASE("idle: each worker that stops looking wakes the next one for what is left") {
  prove("idle: 2 workers, a burst of 2", burst_of_two);
}

TEST_CASE("idle: a burst wakes worker after worker until all run") {
  prove("idle: 3 workers, a burst of 3", burst_of_three);
}

TEST_CASE("idle: a deadline armed as the only worker lies down is slept to") {
  prove(
      "idle: 1 worker, 1 deadline", [] { deadline_is_kept<futex_watch>(never); }, also::unbounded);
}

TEST_CASE("idle: a deadline earlier than the one slept to is kept, not that one") {
  prove(
      "idle: 1 worker asleep to a later deadline",
      [] { deadline_is_kept<futex_watch>(late); },
      also::unbounded);
}

TEST_CASE("idle: a watch whose timer is moved from outside keeps the earlier deadline") {
  prove("idle: 1 worker in a watch with a timer", [] { deadline_is_kept<timer_watch>(late); });
}

TEST_CASE("idle: of two deadlines armed at once the earlier one is kept") {
  prove("idle: 1 worker, 2 deadlines", [] { two_deadlines_are_kept<futex_watch>(); });
}

TEST_CASE("idle: a timer moved from outside twice keeps the earlier deadline") {
  prove("idle: 1 worker in a watch with a timer, 2 deadlines",
        [] { two_deadlines_are_kept<timer_watch>(); });
}

TEST_CASE("idle: work and a deadline that come at once both have a worker") {
  prove("idle: 2 workers, work and a deadline", [] { work_and_deadline<futex_watch>(); });
}

TEST_CASE("idle: work and a deadline at once, in a watch with a timer") {
  prove("idle: 2 workers, work and a deadline, a watch with a timer",
        [] { work_and_deadline<timer_watch>(); });
}

TEST_CASE("idle: the deputy keeps the second deadline while the watcher's user is busy") {
  prove("idle: watcher and deputy", [] { second_deadline_is_kept<futex_watch>(true); });
}

TEST_CASE("idle: the deputy of a watch with a timer keeps the second deadline") {
  prove("idle: watcher and deputy, a watch with a timer",
        [] { second_deadline_is_kept<timer_watch>(true); });
}

TEST_CASE("idle: a deadline armed while the watcher wakes is kept although its user is busy") {
  prove("idle: watcher wakes, 1 deadline armed",
        [] { second_deadline_is_kept<futex_watch>(false); });
}

TEST_CASE("idle: the same in a watch with a timer, whose deputy is moved or woken") {
  prove("idle: watcher wakes, 1 deadline armed, a watch with a timer",
        [] { second_deadline_is_kept<timer_watch>(false); });
}

TEST_CASE("idle: who is to be woken by name is woken, wherever it sleeps") {
  prove("idle: 2 workers, each woken by name", [] {
    auto s = std::make_unique<futex_scheduler>();
    std::atomic<bool> inbox[2] = {false, false};
    const auto owner = [&](unsigned me) {
      sleeper& place = s->places[me];
      s->idle.start_looking();
      while (!inbox[me].load()) {
        s->idle.lie_down(place, never, never);
        if (inbox[me].load()) {
          s->idle.stay_awake(place);
        } else {
          s->idle.sleep(place);
        }
      }
      s->idle.stop_looking();
    };
    std::thread other([&] { owner(1); });
    std::thread sender([&] {
      for (unsigned i = 0; i < 2; ++i) {
        inbox[i].store(true);
        s->idle.wake(s->places[i]);
      }
    });
    owner(0);
    sender.join();
    other.join();
  });
}

// --- on real workers

namespace {

// Keeps its worker until another has set it.
void busy_until(const std::atomic<bool>& set) {
  model::wait_until([&] { return set.load(); });
  static_cast<void>(set.load());  // what was done before is seen
}

// Runs `body` as the main fiber when all other workers sleep. `rt` is held by a
// work guard: plain threads are about to do something.
template <class F>
void when_others_sleep(unsigned n, F&& body) {
  vigil::runtime rt(strict_workers(n));
  const vigil::work_guard guard = rt.make_work_guard();
  rt.run([&] {
    vigil::sleep_for(1ms);
    body(rt);
  });
}

}  // namespace

TEST_CASE("idle: a fiber that a plain thread starts runs, whoever lies down") {
  prove("idle: go from a plain thread, both lie down", [] {
    when_others_sleep(2, [](vigil::runtime& rt) {
      turnstile main;
      const model::window w;
      std::thread outside([&] { rt.go([&] { main.open(); }); });
      main.wait();
      outside.join();
    });
  });
}

TEST_CASE("idle: a fiber started while the other worker lies down runs there") {
  prove("idle: go while the other worker lies down", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      std::atomic<int> ran{0};
      const model::window w;
      for (int i = 1; i <= 2; ++i) {
        vigil::go([&] { ran.fetch_add(1); });
        model::wait_until([&] { return ran.load() == i; });
      }
    });
  });
}

TEST_CASE("idle: of a burst of fibers each has a worker") {
  prove("idle: a burst of 2 fibers, 2 workers", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      std::atomic<int> running{0};
      const auto busy = [&] {
        running.fetch_add(1);
        model::wait_until([&] { return running.load() == 2; });
      };
      const model::window w;
      auto first = vigil::spawn(busy);
      auto second = vigil::spawn(busy);
      first.join();
      second.join();
    });
  });
}

TEST_CASE("idle: a burst by a busy worker wakes worker after worker") {
  prove("idle: a burst of 2 fibers by a busy worker, 3 workers", [] {
    when_others_sleep(3, [](vigil::runtime&) {
      std::atomic<int> running{0};
      const auto busy = [&] {
        running.fetch_add(1);
        model::wait_until([&] { return running.load() == 2; });
      };
      vigil::fiber<> first;
      vigil::fiber<> second;
      {
        const model::window w;
        first = vigil::spawn(busy);
        second = vigil::spawn(busy);
        model::wait_until([&] { return running.load() == 2; });
      }
      first.join();
      second.join();
    });
  });
}

TEST_CASE("idle: a timer that a plain thread arms fires, whoever lies down") {
  prove("idle: a timer from a plain thread, both lie down", [] {
    when_others_sleep(2, [](vigil::runtime& rt) {
      turnstile main;
      std::optional<model::window> w;
      w.emplace();
      std::thread outside([&] {
        rt.after_func(1ms, [&] {
          w.reset();
          main.open();
        });
      });
      main.wait();
      outside.join();
    });
  });
}

TEST_CASE("idle: a timer that a busy worker arms fires on the other, which lies down") {
  prove("idle: timers of a busy worker, the other lies down", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      std::atomic<int> fired{0};
      const model::window w;
      for (int i = 1; i <= 2; ++i) {
        const auto deadline = vigil::deadline_in(1ms);
        const vigil::timer t = vigil::after_func(1ms, [&] { fired.fetch_add(1); });
        model::wait_until([&] { return fired.load() == i; });
        model::require(vigil::clock::now() == deadline, "in time: nothing else moves the clock");
      }
    });
  });
}

TEST_CASE("idle: a worker that sleeps to a deadline is moved to an earlier one") {
  prove("idle: a plain thread arms an earlier timer, 1 worker sleeps", [] {
    when_others_sleep(2, [](vigil::runtime& rt) {
      std::atomic<bool> fired{false};
      std::atomic<bool> over{false};
      auto& current = *vigil::internal::current_fiber()->sched;
      moment armed;
      const nanos deadline = model::now() + 1'000'000;
      vigil::timer later = vigil::after_func(2ms, [] {});
      std::thread outside([&] {
        model::wait_until([&] { return current.idle().earliest() == deadline + 1'000'000; });
        {
          const model::window w;
          rt.after_func(1ms, [&] {
            const nanos now = monotonic_now();
            model::require(now == deadline || armed.when() >= deadline, "in time");
            fired.store(true);
          });
          armed.comes();
          busy_until(fired);
        }
        over.store(true);
      });
      busy_until(over);
      outside.join();
      later.stop();
    });
  });
}

// --- P7: watcher and deputy

namespace {

// The main fiber does `begin` and waits. When both workers sleep, a plain thread
// does `meanwhile` in a window that ends when `fired` is set. So the first
// timer wakes a worker inside the window, and whatever it wakes for is busy
// until the window has ended: the other worker alone can set `fired`.
class both_asleep {
 public:
  template <class Begin, class Meanwhile>
  static void run(Begin&& begin, Meanwhile&& meanwhile) {
    when_others_sleep(2, [&](vigil::runtime& rt) {
      both_asleep t(rt);
      begin(t);
      std::thread observer([&] {
        const auto& idle = t.sched_.idle();
        model::wait_until([&] { return idle.asleep() == 2; });
        {
          const model::window w;
          meanwhile(t);
          busy_until(t.fired);
        }
        t.window_ended_.store(true);
      });
      t.main_.wait();
      observer.join();
    });
  }

  // By the fiber for which the watcher wakes.
  void stay_busy() {
    busy_until(window_ended_);
    main_.open();
  }

  vigil::runtime& rt;
  std::atomic<bool> fired{false};

 private:
  explicit both_asleep(vigil::runtime& r)
      : rt(r), sched_(*vigil::internal::current_fiber()->sched) {}

  vigil::internal::scheduler& sched_;
  turnstile main_;
  std::atomic<bool> window_ended_{false};
};

}  // namespace

TEST_CASE("idle: the deputy fires the second timer while the first one's callback is busy") {
  prove("P7: 2 timers, the first one's callback is busy", [] {
    both_asleep::run(
        [](both_asleep& t) {
          vigil::after_func(1ms, [&] { t.stay_busy(); });
          vigil::after_func(2ms, [&] { t.fired.store(true); });
        },
        [](both_asleep&) {});
  });
}

TEST_CASE("idle: a sleeper's deadline is kept while the fiber that slept less is busy") {
  prove("P7: 2 sleepers, the first is busy", [] {
    both_asleep::run(
        [](both_asleep& t) {
          vigil::go([&] {
            vigil::sleep_for(1ms);
            t.stay_busy();
          });
          vigil::go([&] {
            vigil::sleep_for(2ms);
            t.fired.store(true);
          });
        },
        [](both_asleep&) {});
  });
}

TEST_CASE("idle: a timer that the busy callback has armed is kept by the other worker") {
  prove("P7: a busy callback arms the next timer", [] {
    both_asleep::run(
        [](both_asleep& t) {
          vigil::after_func(1ms, [&] {
            vigil::after_func(1ms, [&] { t.fired.store(true); });
            t.stay_busy();
          });
        },
        [](both_asleep&) {});
  });
}

TEST_CASE("idle: a sleep that begins beside a busy fiber is kept by the other worker") {
  prove("P7: a fiber parks to the next deadline, then its worker is busy", [] {
    both_asleep::run(
        [](both_asleep& t) {
          vigil::go([&] {
            vigil::sleep_for(1ms);
            // Goes next on this worker, which owes the cover of the sleep.
            vigil::go([&] { t.stay_busy(); });
            vigil::sleep_for(1ms);
            t.fired.store(true);
          });
        },
        [](both_asleep&) {});
  });
}

TEST_CASE("idle: a sleep whose worker goes on with another fiber is kept by the other worker") {
  prove("P7: a fiber parks to the next deadline, its worker has a pinned one", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      const auto& sched = *vigil::internal::current_fiber()->sched;
      std::optional<turnstile> other;
      auto pinned = vigil::spawn([&] {
        const vigil::this_fiber::pin here;
        other.emplace();
        other->wait();
        // Nobody but the other worker can fire it now.
        model::wait_until([&] { return sched.next_deadline.load() == never; });
      });
      vigil::sleep_for(1ms);
      const model::window w;
      other->open();  // wakes nobody: it waits for this worker
      vigil::sleep_for(1ms);
      pinned.join();
    });
  });
}

TEST_CASE("idle: a timer armed from outside as the watcher wakes is kept by the other worker") {
  prove("P7: a plain thread arms the next timer as the watcher wakes", [] {
    both_asleep::run([](both_asleep& t) { vigil::after_func(1ms, [&] { t.stay_busy(); }); },
                     [](both_asleep& t) { t.rt.after_func(2ms, [&] { t.fired.store(true); }); });
  });
}

TEST_CASE("idle: a deputy that sleeps to a later deadline is given the earlier one") {
  prove("P7: the deputy is retargeted", [] {
    when_others_sleep(2, [](vigil::runtime&) {
      turnstile main;
      std::atomic<bool> fired{false};
      moment armed;
      const nanos second = model::now() + 2'000'000;
      vigil::after_func(1ms, [&] {
        {
          const model::window w;
          vigil::after_func(1ms, [&] {
            // The other worker sleeps no longer than to this, once armed.
            const nanos now = monotonic_now();
            model::require(now == second || armed.when() >= second, "the deputy is in time");
            fired.store(true);
          });
          armed.comes();
          busy_until(fired);
        }
        main.open();
      });
      vigil::timer third = vigil::after_func(3ms, [] {});
      main.wait();
      third.stop();
    });
  });
}

// --- naps

namespace {

// Caller: the main fiber, the only one awake.
void nap_soon() {
  auto& sched = *vigil::internal::current_scheduler();
  sched.naps_after.store(0);
  sched.naps_in_a_row.store(1);
}

// The main fiber's worker stays awake; the other one naps whenever it may.
template <class F>
void when_the_other_naps(F&& body) {
  when_others_sleep(2, [&](vigil::runtime&) {
    nap_soon();
    const model::window w;
    body();
  });
}

void wait_for(std::atomic<int>& count, int n) {
  model::wait_until([&] { return count.load() == n; });
}

}  // namespace

TEST_CASE("idle: a fiber handed over beside a napping worker runs, at the latest after the nap") {
  prove("nap: 2 fibers in turn beside a computing one", [] {
    when_the_other_naps([] {
      std::atomic<int> ran{0};
      for (int i = 1; i <= 2; ++i) {
        vigil::go([&] { ran.fetch_add(1); });
        wait_for(ran, i);
      }
    });
  });
}

TEST_CASE("idle: two pieces of work rouse a napping worker") {
  prove("nap: a burst of 2 fibers beside a computing one", [] {
    when_the_other_naps([] {
      std::atomic<int> ran{0};
      vigil::go([&] { ran.fetch_add(1); });
      wait_for(ran, 1);
      vigil::go([&] { ran.fetch_add(1); });
      vigil::go([&] { ran.fetch_add(1); });
      wait_for(ran, 3);
    });
  });
}

TEST_CASE("idle: a deadline before the end of a nap rouses who naps") {
  prove("nap: a timer of 10 us by a busy worker", [] {
    when_the_other_naps([] {
      std::atomic<int> ran{0};
      vigil::go([&] { ran.fetch_add(1); });
      wait_for(ran, 1);
      moment armed;
      const nanos deadline = model::now() + 10'000;
      const vigil::timer t = vigil::after_func(10us, [&] {
        const nanos now = monotonic_now();
        model::require(now == deadline || armed.when() >= deadline, "in time");
        ran.fetch_add(1);
      });
      armed.comes();
      wait_for(ran, 2);
    });
  });
}

TEST_CASE("idle: a run ends while a worker naps") {
  prove("nap: the run ends", [] {
    vigil::run(strict_workers(2), [] {
      vigil::sleep_for(1ms);
      nap_soon();
      const model::window w;
      vigil::go([] {});
    });
  });
}

TEST_CASE("idle: a watch is changed while workers sleep: one of them, and no more, goes there") {
  prove("idle: the watch is changed, 2 workers", change_of_the_watch);
}
