// A scheduler reduced to fibers that are numbers, and a watch with a timer of its own:
// for the protocol of idle.hpp by itself.
#pragma once

#include "core/base/clock_source.hpp"
#include "core/base/futex.hpp"
#include "core/base/nanos.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/idle/idle.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace idle_protocol {

using vigil::detail::futex_watch;
using vigil::detail::idle_workers;
using vigil::detail::lock_guard;
using vigil::detail::lock_rank;
using vigil::detail::monotonic_now;
using vigil::detail::nanos;
using vigil::detail::never;
using vigil::detail::sleeper;
using vigil::detail::spinlock;
using vigil::detail::watch;

inline constexpr nanos start_of_clock = 1'000'000'000;
inline constexpr nanos soon = start_of_clock + 100;
inline constexpr nanos late = start_of_clock + 1000;

// A watch whose timer can be set from outside, like one over a timerfd.
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
      vigil::detail::futex_wait(word_, seen, until);
    }
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
    word_.fetch_add(2);
    vigil::detail::futex_wake_one(word_);
    return true;
  }

 private:
  static constexpr std::uint32_t interrupted = 1;

  std::atomic<nanos> moved_{never};
  vigil::detail::futex_word word_{0};
};

// A scheduler whose fibers are numbers: pieces of work, a deadline, and the workers' way
// to sleep (worker::run, stop_looking, rest).
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
    work.fetch_add(1);  // IA1
    idle.wake_one();    // IA2, IA3
  }

  // HK1 of heap_keeper.hpp: the entry first, then next_deadline; only a thread that
  //     lowers
  // that looks at the sleepers.
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

  // `work_found` and `deadline_found` are user code.
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
    if (last && work.load() != 0) idle.leave();
    idle.cover(next_deadline.load());
  }
};

using futex_scheduler = small_scheduler<futex_watch>;

inline void nothing() {}

}  // namespace idle_protocol
