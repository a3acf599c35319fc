// Timers: callbacks, channels, sleeps. Each arming is fired or prevented, exactly once,
// and never early; on virtual time it comes at its very deadline.
#include "soak/world.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace vigil::soak {
namespace {

struct timer_ledger : ledger {
  using ledger::ledger;
  opened armed{*this, "armed"};
  closed fired{*this, "fired"};
  closed stopped{*this, "stopped"};
  closed replaced{*this, "reset"};
  closed dropped{*this, "dropped"};
  note refused{*this, "refused for want of memory"};
};

struct sleep_ledger : ledger {
  using ledger::ledger;
  opened begun{*this, "begun"};
  closed ended{*this, "in time"};
  closed cancelled{*this, "cancelled"};
};

// The armings and the runs of one timer with a callback in a round. The callback owns it
// as well.
class arming_list {
 public:
  // Room for all of a round: an arming that is counted must not be refused its place.
  explicit arming_list(timer_ledger& l) : ledger_(l) {
    due_.reserve(8);
    ran_at_.reserve(8);
  }

  ~arming_list() { ledger_.must(is_judged_, "a timer was not looked at"); }

  void arms(time_point due) {
    ++ledger_.armed;
    const std::lock_guard guard(lock_);
    due_.push_back(due);
  }

  // The last arming, of those before `next`, was prevented.
  void is_prevented(entry& how, std::size_t next = 0) {
    ++how;
    const std::lock_guard guard(lock_);
    if (due_.size() <= next) return ledger_.fail("an arming was prevented that there was not");
    due_.erase(due_.end() - 1 - static_cast<std::ptrdiff_t>(next));
  }

  // On the callback's fiber.
  void runs() {
    const time_point now = clock::now();
    {
      const std::lock_guard guard(lock_);
      ledger_.must(!is_judged_, "a callback ran after its timer was stopped for good");
      ran_at_.push_back(now);
    }
    ++ledger_.fired;
    static_cast<void>(signals_.try_send());
  }

  // For one more run than the last time.
  void wait_for_run() const { signals_.recv(); }

  // When nothing is pending and nothing runs any more. The nth run belongs to the nth
  // deadline, or to an earlier one.
  void judge(const world& w) {
    const std::lock_guard guard(lock_);
    is_judged_ = true;
    if (due_.size() != ran_at_.size()) {
      ledger_.fail(std::to_string(due_.size()) + " armings were not prevented, and there were " +
                   std::to_string(ran_at_.size()) + " runs");
      return;
    }
    std::sort(due_.begin(), due_.end());
    std::sort(ran_at_.begin(), ran_at_.end());
    for (std::size_t i = 0; i < due_.size(); ++i)
      w.check_time(ledger_, due_[i], ran_at_[i]);
  }

 private:
  timer_ledger& ledger_;
  const channel<void> signals_ = make_channel<void>(64);
  std::mutex lock_;              // guards the rest; held across no wait
  std::vector<time_point> due_;  // of armings that were not prevented
  std::vector<time_point> ran_at_;
  bool is_judged_ = false;
};

// Arms a timer for f. One arming in four has no memory at its first, second or third
// allocation, and is then an empty handle.
template <class F>
timer arm(world& w, timer_ledger& l, dice& d, const std::shared_ptr<arming_list>& done, F f) {
  const nanoseconds length = w.draw(d);
  const time_point due = clock::now() + length;
  done->arms(due);
  const std::uint64_t edges = w.shortages();
  const std::uint32_t nth = d.one_in(4) ? 1 + d.below(3) : 0;
  try {
    const hunger fails(nth);
    return after_func(length, std::move(f));
  } catch (const std::bad_alloc&) {
    l.must(nth != 0 || w.shortage_since(edges), "no memory for a timer, without a shortage");
    ++l.refused;
    done->is_prevented(l.stopped);
    return {};
  }
}

// A reset by two calls of the library's: the relative one, and the absolute one.
void reset(world& w, timer_ledger& l, dice& d, const timer& t, arming_list& done) {
  const nanoseconds length = w.draw(d);
  const time_point due = clock::now() + length;
  done.arms(due);
  const bool is_absolute = d.one_in(2);
  const auto again = [&] { return is_absolute ? t.reset(due) : t.reset(length); };
  if (w.insist(again)) done.is_prevented(l.replaced, 1);
}

// Two fibers and this one stop a timer at a time: one of them, or none, prevents.
void stop_by_three(world& w, timer_ledger& l, const timer& t, arming_list& done) {
  std::atomic<int> prevented{0};
  const auto stop = [&] { prevented += t.stop() ? 1 : 0; };
  auto other = w.insist([&] { return spawn(stop); });
  auto third = w.insist([&] { return spawn(stop); });
  stop();
  other.join();
  third.join();
  l.must(prevented <= 1, "two calls of stop() prevented one arming");
  if (prevented != 0) done.is_prevented(l.stopped);
}

// One timer with a callback: armed, reset, stopped, at any time.
void play_callback(world& w, timer_ledger& l, dice& d) {
  const auto done = std::make_shared<arming_list>(l);
  const timer t = arm(w, l, d, done, [done] { done->runs(); });
  if (!t) return done->judge(w);
  try {
    for (std::uint32_t n = d.below(5); n != 0; --n) {
      switch (d.below(4)) {
        case 0:
          sleep_for(w.draw(d));
          break;
        case 1:
          this_fiber::yield();
          break;
        case 2:
          stop_by_three(w, l, t, *done);
          break;
        default:
          reset(w, l, d, t, *done);
          break;
      }
    }
    // Half of those that are pending may run.
    for (time_point due = t.deadline(); d.one_in(2) && due != time_point::max();
         due = t.deadline()) {
      sleep_for(std::max<nanoseconds>(due - clock::now(), 1us));
    }
  } catch (...) {
    if (t.stop_and_wait()) done->is_prevented(l.stopped);
    done->judge(w);
    throw;
  }
  if (t.stop_and_wait()) done->is_prevented(l.stopped);
  done->judge(w);
}

// A timer that nobody stops: its handle is dropped.
void play_dropped(world& w, timer_ledger& l, dice& d) {
  const auto done = std::make_shared<arming_list>(l);
  if (arm(w, l, d, done, [done] { done->runs(); })) done->wait_for_run();
  done->judge(w);
}

// A callback that arms its own timer again.
void play_own_resets(world& w, timer_ledger& l, dice& d) {
  const auto left = std::make_shared<std::atomic<int>>(static_cast<int>(d.below(5)));
  const auto own = std::make_shared<dice>(d.another());
  const auto done = std::make_shared<arming_list>(l);
  const timer t = arm(w, l, d, done, [&w, done, left, own](timer& self) {
    done->runs();
    if (left->fetch_sub(1) <= 0) return;
    const nanoseconds length = w.draw(*own);
    done->arms(clock::now() + length);
    w.insist([&] { self.reset(length); });
  });
  if (!t) return done->judge(w);
  done->wait_for_run();
  w.insist([length = w.draw(d)] { sleep_for(length); });
  if (t.stop_and_wait()) done->is_prevented(l.stopped);
  done->judge(w);
}

// A timer's channel: the value is the deadline, and comes once.
void play_channel(world& w, timer_ledger& l, dice& d) {
  nanoseconds length = w.draw(d);
  time_point least = clock::now() + length;
  const timer t(length);
  ++l.armed;
  bool is_pending = true;
  for (std::uint32_t n = 1 + d.below(4); n != 0; --n) {
    switch (d.below(3)) {
      case 0:
        if (!is_pending) break;
        length = w.draw(d);
        if (const auto got = w.insist([&] { return t.channel().recv_for(length); })) {
          ++l.fired;
          is_pending = false;
          l.must(*got >= least, "a timer's value is before its deadline");
          l.must(clock::now() >= *got, "a timer's value came early");
        }
        break;
      case 1: {
        length = w.draw(d);
        least = clock::now() + length;
        const bool was_pending = w.insist([&] { return t.reset(length); });
        l.must(was_pending == is_pending, "reset() does not know whether the value was received");
        if (was_pending) ++l.replaced;
        ++l.armed;
        is_pending = true;
        break;
      }
      default:
        l.must(t.stop() == is_pending, "stop() does not know whether the value was received");
        if (is_pending) ++l.stopped;
        is_pending = false;
        l.must(!t.channel().try_recv(), "a value came after stop()");
        break;
    }
  }
  if (is_pending) ++l.dropped;
}

void play_sleep(world& w, sleep_ledger& l, dice& d) {
  const nanoseconds length = w.draw(d);
  const time_point due = clock::now() + length;
  if (d.one_in(2)) {
    ++l.begun;
    const bool is_relative = d.one_in(2);
    w.insist([&] { is_relative ? sleep_for(length) : sleep_until(due); });
    w.check_time(l, due, clock::now());
    ++l.ended;
    return;
  }
  const time_point cut = clock::now() + w.draw(d);
  const cancellable cutter = with_deadline(background(), cut);
  ++l.begun;
  try {
    w.insist([&] { sleep_until(due, cutter.ctx); });
    w.check_time(l, due, clock::now());
    ++l.ended;
  } catch (const cancelled& e) {
    l.must(e.code() == std::errc::timed_out, "a sleep was cancelled, but not by its deadline");
    w.check_time(l, cut, clock::now());
    ++l.cancelled;
  }
}

}  // namespace

void cast_timers(world& w) {
  auto& l = *w.keep<timer_ledger>("timers");
  auto& s = *w.keep<sleep_ledger>("sleeps");
  w.cast("callbacks", 4, [&](dice& d) { play_callback(w, l, d); });
  w.cast("dropped timers", 2, [&](dice& d) { play_dropped(w, l, d); });
  w.cast("own resets", 2, [&](dice& d) { play_own_resets(w, l, d); });
  w.cast("timer channels", 2, [&](dice& d) { play_channel(w, l, d); });
  w.cast("sleeps", 2, [&](dice& d) { play_sleep(w, s, d); });
}

}  // namespace vigil::soak
