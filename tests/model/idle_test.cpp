// Sleeping and waking: work that was added and a deadline that was armed are never left
// behind while all workers sleep.
//
// The protocol of idle.hpp by itself: threads that act as workers do, but without a
// fiber, against threads that add work or lower a deadline.
#include "idle_protocol.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace idle_protocol;
using programs::moment;

namespace {

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

// The same when three workers already sleep.
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

// A watch that only one worker may be in.
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

// The only worker may already sleep, to `asleep_to`.
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

// P7: the user's work goes on until the deadline has been kept.
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

// P7: the worker that keeps the first deadline is busy until the second has been kept.
// `armer`, on a thread of its own, arms the second.
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

TEST_CASE("idle: each of two adders finds the worker awake or wakes it") {
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

TEST_CASE("idle: each worker that stops looking wakes the next one for the remaining work") {
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

TEST_CASE("idle: a worker to be woken by name is woken, wherever it sleeps") {
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

TEST_CASE("idle: a watch is changed while workers sleep: one of them, and no more, goes there") {
  prove("idle: the watch is changed, 2 workers", change_of_the_watch);
}
