// A watch that hears of I/O: idle_workers (idle.hpp) by itself, with threads that act as
// workers do, but without a fiber.
//
// Only the worker in the watch hears of events. So each program keeps the worker that
// took the first event busy until the next one has been taken, too: by the other worker,
// wherever it was.
#include "core/base/clock_source.hpp"
#include "core/base/futex.hpp"
#include "core/sched/idle/idle.hpp"
#include "prove.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

using vigil::detail::futex_watch;
using vigil::detail::futex_word;
using vigil::detail::idle_workers;
using vigil::detail::monotonic_now;
using vigil::detail::nanos;
using vigil::detail::never;
using vigil::detail::sleeper;
using vigil::detail::watch;

namespace {

constexpr nanos start_of_clock = 1'000'000'000;
constexpr nanos soon = start_of_clock + 100;
constexpr nanos late = start_of_clock + 1000;

// Events that become ready, and a timer that can be set from outside.
class event_watch final : public watch {
 public:
  explicit event_watch(std::atomic<int>& work) noexcept : work_(work) {}

  void prepare() noexcept override {
    moved_.store(never);
    word_.fetch_and(~interrupted);
  }

  void wait_until(nanos deadline) noexcept override {
    model::require(inside_.fetch_add(1) == 0, "one worker is in the watch");
    for (;;) {
      const std::uint32_t seen = word_.load();
      if ((seen & events) != 0) marked_.fetch_add(take_all());
      if ((seen & (events | interrupted)) != 0) break;
      const nanos until = std::min(deadline, moved_.load());
      if (until != never && monotonic_now() >= until) break;
      vigil::detail::futex_wait(word_, seen, until);
    }
    inside_.fetch_sub(1);
  }

  bool interrupt() noexcept override {
    word_.fetch_or(interrupted);
    vigil::detail::futex_wake_one(word_);
    return true;
  }

  bool earlier(nanos deadline) noexcept override {
    nanos seen = moved_.load();
    while (deadline < seen && !moved_.compare_exchange_weak(seen, deadline)) {
    }
    word_.fetch_add(one_move);
    vigil::detail::futex_wake_one(word_);
    return true;
  }

  // As IW4 of io_watch.hpp: the worker that was inside makes runnable what it has marked
  // there.
  void after_wait() noexcept override { work_.fetch_add(marked_.exchange(0)); }

  // --- the outside world
  void happens() noexcept {
    word_.fetch_add(one_event);
    vigil::detail::futex_wake_one(word_);
  }

 private:
  static constexpr std::uint32_t interrupted = 1;
  static constexpr std::uint32_t one_event = 2;
  static constexpr std::uint32_t events = 0xfffe;
  static constexpr std::uint32_t one_move = 0x10000;

  int take_all() noexcept {
    std::uint32_t seen = word_.load();
    while (!word_.compare_exchange_weak(seen, seen & ~events)) {
    }
    return static_cast<int>((seen & events) / one_event);
  }

  std::atomic<int>& work_;
  std::atomic<nanos> moved_{never};
  futex_word word_{0};
  std::atomic<int> inside_{0};
  std::atomic<int> marked_{0};
};

// Two workers, and their steps around idle_workers (worker::run, stop_looking, rest).
struct two_workers {
  const bool attached;  // from the beginning
  const bool is_overseen;
  std::atomic<int> work{0};
  event_watch events{work};
  futex_watch plain;  // their place of sleep before events are attached
  idle_workers idle;
  std::atomic<nanos> deadline{never};
  std::atomic<int> taken{0};
  std::atomic<bool> quit{false};
  sleeper places[2];

  // `has_overseer`: what is left counts as left often from the beginning, and there is an
  // overseer.
  explicit two_workers(bool at_once, bool has_overseer = false)
      : attached(at_once),
        is_overseen(has_overseer),
        idle(at_once ? static_cast<watch&>(events) : plain) {
    if (!is_overseen) return;
    idle.count_as_traffic();
    idle.overseen.begin();
  }

  void arm(nanos to) {
    nanos seen = deadline.load();
    while (to < seen) {
      if (deadline.compare_exchange_weak(seen, to)) {
        idle.cover(to);
        return;
      }
    }
  }

  void end() {
    quit.store(true);
    idle.wake_all();
  }

  // User code that ends when all events have been taken: the last of them ends the
  // program.
  void take_one_of(int all) {
    if (taken.fetch_add(1) + 1 == all) {
      end();
    } else {
      model::wait_until([&] { return taken.load() == all; });
    }
  }

  // `late` is only slept to: nobody waits for it.
  bool find() {
    nanos due = deadline.load();
    if (due != never && monotonic_now() >= due && deadline.compare_exchange_strong(due, never) &&
        due != late) {
      return true;
    }
    int seen = work.load();
    while (seen != 0) {
      if (work.compare_exchange_weak(seen, seen - 1)) return true;
    }
    return false;
  }

  template <class User>
  void worker(unsigned me, User&& user) {
    idle.start_looking();
    for (;;) {
      if (find()) {
        stop_looking();
        user();
        idle.start_looking();
        continue;
      }
      if (quit.load()) break;
      idle.lie_down(places[me], deadline.load(), never);
      if (deadline.load() < idle.earliest() || work.load() != 0 || quit.load()) {
        idle.stay_awake(places[me]);
      } else {
        idle.sleep(places[me]);
      }
    }
    idle.stop_looking();
  }

  void stop_looking() {
    const bool last = idle.stop_looking();
    if (idle.asleep() == 0) return;
    if (last && work.load() != 0) idle.leave();
    if (attached) idle.staff_watch();
    idle.cover(deadline.load());
  }

  // As idler::share(), called by user code.
  void add_work() {
    work.fetch_add(1);
    idle.leave();
  }

  bool is_left() const {
    if (idle.asleep() != 1 || idle.looking() != 0) return false;
    return work.load() != 0 || !idle.is_watched() || deadline.load() < idle.earliest();
  }

  // overseer::body(), which wakes a worker for what it has found left at two looks.
  void oversee() {
    bool was_left = false;
    for (;;) {
      idle.overseen.clear();
      if (idle.overseen.is_over()) return;
      nanos until = never;
      if (idle.overseen.looks()) {
        const bool left = is_left();
        if (left && was_left) idle.wake_one();
        was_left = left;
        if (left || !idle.overseen.rests([&] { return !is_left(); })) until = monotonic_now() + 1;
      }
      idle.overseen.sleep_until(until);
    }
  }

  // Both workers run, and `outside` goes on beside them.
  template <class User, class Outside>
  void run(User&& user, Outside&& outside) {
    std::thread overseer;
    if (is_overseen) overseer = std::thread([&] { oversee(); });
    std::thread other([&] { worker(1, user); });
    std::thread world(outside);
    worker(0, user);
    world.join();
    other.join();
    if (!is_overseen) return;
    idle.overseen.end();
    overseer.join();
  }
};

// The workers may be anywhere between looking and sleeping as each event comes.
void two_events(bool has_overseer) {
  const auto s = std::make_unique<two_workers>(true, has_overseer);
  s->run([&] { s->take_one_of(2); },
         [&] {
           s->events.happens();
           s->events.happens();
         });
}

// The first event is done at once, so its worker goes back to the watch; the second keeps
// its worker until the third has been taken.
void come_and_go() {
  const auto s = std::make_unique<two_workers>(true, true);
  s->run(
      [&] {
        if (s->taken.fetch_add(1) == 0) {
          s->events.happens();
          s->events.happens();
        } else if (s->taken.load() == 3) {
          s->end();
        } else {
          model::wait_until([&] { return s->taken.load() == 3; });
        }
      },
      [&] { s->events.happens(); });
}

// User code leaves what it readies to itself, and computes until the other worker has
// taken it.
void left_work() {
  const auto s = std::make_unique<two_workers>(true, true);
  s->run(
      [&] {
        if (s->taken.fetch_add(1) == 0) {
          s->add_work();
          model::wait_until([&] { return s->taken.load() == 2; });
        } else {
          s->end();
        }
      },
      [&] { s->events.happens(); });
}

// The worker in the watch sleeps to a later deadline, or is on its way there.
void event_and_earlier_deadline(bool has_overseer) {
  const auto s = std::make_unique<two_workers>(true, has_overseer);
  s->arm(late);
  s->run([&] { s->take_one_of(2); },
         [&] {
           s->arm(soon);
           s->events.happens();
         });
}

// The watch is attached by a fiber whose deadline has come, and which goes on to compute:
// the event is for the other worker.
void attached_meanwhile() {
  const auto s = std::make_unique<two_workers>(false);
  std::atomic<bool> changed{false};
  s->run(
      [&] {
        if (!changed.exchange(true)) {
          s->idle.change_watch(s->events);
          s->events.happens();
        }
        s->take_one_of(2);
      },
      [&] { s->arm(soon); });
}

}  // namespace

TEST_CASE("watch: its worker leaves it for user code as the other goes to sleep") {
  prove("watch: 2 workers, 2 events", [] { two_events(false); });
}

TEST_CASE("watch: one that is left often is taken over when the overseer has seen it") {
  prove("watch: 2 workers, 2 events, an overseer", [] { two_events(true); });
}

TEST_CASE("watch: its worker comes and goes, and computes at last: the overseer still looks") {
  prove("watch: 2 workers, 3 events, an overseer", come_and_go);
}

TEST_CASE("watch: work that is left to a worker in user code is taken by the other") {
  prove("watch: 2 workers, work that user code leaves, an overseer", left_work);
}

TEST_CASE("watch: an event and an earlier deadline both have a worker") {
  prove("watch: 2 workers asleep to a later deadline, an event and a deadline",
        [] { event_and_earlier_deadline(false); });
}

TEST_CASE("watch: an event and an earlier deadline at a busy one both have a worker") {
  prove_at_length(
      "watch: 2 workers asleep to a later deadline, an event and a deadline, an overseer",
      [] { event_and_earlier_deadline(true); });
}

TEST_CASE("watch: one attached while the other worker sleeps, or is about to, is waited in") {
  prove("watch: attached by user code, then an event", attached_meanwhile);
}
