// The thread that goes on, and the value that is read: the decisions of a run, and the
// choices left to try in the next one.
#include "explorer/engine.hpp"

#include <bit>
#include <cstdio>
#include <cstdlib>

namespace model {
namespace {

// How often threads may spin in turn without any write.
constexpr std::uint64_t patience = 400;

// Not std::popcount(), which is a call on the oldest processors of a kind.
constexpr bool is_single(thread_mask mask) noexcept {
  return mask != 0 && (mask & (mask - 1)) == 0;
}

}  // namespace

bool engine::can_run(unsigned t) {
  thread& it = threads_[t];
  switch (it.state) {
    case thread_state::ready:
      return true;
    case thread_state::paused:
      return writes_ > it.paused_at;
    case thread_state::joining:
      return threads_[it.joined].state == thread_state::ended;
    case thread_state::waiting:
      return it.condition(it.condition_argument);
    case thread_state::locked:
      return writes_ > it.paused_at;
    case thread_state::absent:
    case thread_state::sleeping:
    case thread_state::ended:
      return false;
  }
  return false;
}

thread_mask engine::enabled_threads() {
  thread_mask mask = 0;
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (can_run(t)) mask |= bit(t);
  }
  return mask;
}

// No thread can go on by itself: spinning threads look again, or time passes.
unsigned engine::choose_without_ready() {
  ++idle_rounds_;
  unsigned spins = max_threads;
  unsigned sleeps = max_threads;
  // Among equals the next one round, so that each gets its turn.
  for (unsigned i = 1; i <= thread_count_; ++i) {
    const unsigned t = (current_ + i) % thread_count_;
    const thread& it = threads_[t];
    if (it.state == thread_state::paused &&
        (spins == max_threads || it.paused_at < threads_[spins].paused_at)) {
      spins = t;
    }
    if (it.state == thread_state::sleeping && it.until != INT64_MAX &&
        (sleeps == max_threads || it.until < threads_[sleeps].until)) {
      sleeps = t;
    }
  }
  if (spins != max_threads && idle_rounds_ < patience) return spins;
  if (sleeps != max_threads) {
    idle_rounds_ = 0;
    if (!exploring()) return sleeps;
    // A thread that sleeps longer may still be the first to go on.
    thread_mask timed = 0;
    for (unsigned t = 0; t < thread_count_; ++t) {
      const thread& it = threads_[t];
      if (it.state == thread_state::sleeping && it.until != INT64_MAX) timed |= bit(t);
    }
    return is_single(timed) ? sleeps : decide(0, timed, sleeps);
  }
  if (spins != max_threads) {
    if (idle_rounds_ < 4 * patience) return spins;
    fail("a thread spins for ever: nobody can change what it waits for");
  }
  std::string who;
  for (unsigned t = 0; t < thread_count_; ++t) {
    const char* what = "";
    switch (threads_[t].state) {
      case thread_state::sleeping:
        what = "sleeps on a futex";
        break;
      case thread_state::joining:
        what = "joins a thread";
        break;
      case thread_state::waiting:
        what = "is busy until something happens";
        break;
      case thread_state::locked:
        what = "waits for a mutex";
        break;
      case thread_state::ended:
        continue;
      default:
        what = "?";
    }
    who += (who.empty() ? "thread " : ", thread ") + std::to_string(t) + " " + what;
  }
  fail("nobody can ever go on: " + who);
}

unsigned engine::choose_thread() {
  last_decision_ = -1;
  const thread_mask ready = enabled_threads();
  if (ready == 0) return choose_without_ready();
  thread_mask enabled = ready;
  if (exploring()) {
    for (unsigned t = 0; t < thread_count_; ++t) {
      if (threads_[t].state == thread_state::sleeping && threads_[t].until != INT64_MAX)
        enabled |= bit(t);
    }
  }
  // The same thread goes on; if it cannot, the first that can. Spinning threads come
  // last, so that they do not go round among themselves.
  unsigned usual = current_;
  if ((ready & bit(current_)) == 0) {
    thread_mask spinning = 0;
    for (unsigned t = 0; t < thread_count_; ++t) {
      if (threads_[t].state == thread_state::paused) spinning |= bit(t);
    }
    const thread_mask first = (ready & ~spinning) != 0 ? ready & ~spinning : ready;
    usual = static_cast<unsigned>(std::countr_zero(first));
    for (unsigned t = 0; first == ready && (first & spinning) != 0 && t < thread_count_; ++t) {
      if ((first & bit(t)) != 0 && threads_[t].paused_at < threads_[usual].paused_at) usual = t;
    }
  }
  if (!exploring()) return usual;
  if (is_single(enabled)) {
    if (!replaying_ && (asleep_ & enabled) != 0) {
      cut_ = true;
      end_run();
    }
    return usual;
  }
  return decide(ready, enabled, usual);
}

// The budget that a new decision finds: the one before it, less what that one cost.
void engine::count_budget(decision& d) const {
  if (depth_ == 0) return;
  const decision& before = path_[depth_ - 1];
  const bool paid = before.what == decision::kind::thread && before.taken != before.previous &&
                    (before.ready & bit(before.previous)) != 0;
  d.preemptions = static_cast<std::int16_t>(before.preemptions + (paid ? 1 : 0));
  d.stale = static_cast<std::int16_t>(
      before.stale + (before.what == decision::kind::value && before.chosen != 0 ? 1 : 0));
}

// The threads tried at a decision that sleep while others are tried: their next operation
// is not tried again until another has met it, since its consequences were seen with it
// done first. Under bounds that must not have cost more there than here. So only the
// thread that ran before sleeps, whose operation needs no change of threads.
thread_mask engine::may_sleep(const decision& d) const noexcept {
  if (!bounds_.reduce) return 0;
  if (bounds_.preemptions == unlimited) return ~thread_mask{0};
  return bit(d.previous) & d.ready;
}

// `ready`: the enabled threads that go on without a timeout.
unsigned engine::decide(thread_mask ready, thread_mask enabled, unsigned usual) {
  consider_checkpoint();
  if (depth_ == path_.size()) {
    decision d;
    d.what = decision::kind::thread;
    d.open = true;
    d.previous = static_cast<std::uint8_t>(current_);
    d.ready = ready;
    d.enabled = enabled;
    d.asleep = asleep_;
    count_budget(d);
    unsigned taken = max_threads;
    if (replaying_) {
      taken = depth_ < script_.size() ? script_[depth_] : max_threads;
      if (taken < max_threads && (enabled & bit(taken)) == 0) {
        fail("the schedule does not fit the program: it was made from another one");
      }
    }
    if (taken == max_threads) {
      thread_mask awake = ready & ~d.asleep;
      if (awake == 0) awake = enabled & ~d.asleep;
      if (awake == 0) {
        cut_ = true;  // every continuation has been seen in another order
        end_run();
      }
      taken = (awake & bit(usual)) != 0 ? usual : static_cast<unsigned>(std::countr_zero(awake));
    }
    d.taken = static_cast<std::uint8_t>(taken);
    d.wanted = bounds_.reduce ? bit(taken) : enabled;
    path_.push_back(d);
  }
  decision& d = path_[depth_];
  if (d.what != decision::kind::thread || d.enabled != enabled ||
      d.previous != static_cast<std::uint8_t>(current_)) {
    std::fprintf(stderr,
                 "model: the program does not repeat itself: its run depends on something beyond "
                 "the schedule, such as an address or a real clock\n");
    std::abort();
  }
  last_decision_ = static_cast<std::int32_t>(depth_);
  asleep_ = (d.asleep | (d.done & may_sleep(d))) & ~bit(d.taken);
  ++depth_;
  return d.taken;
}

std::uint16_t engine::choose_value(std::uint16_t n) {
  if (n <= 1 || !exploring()) return 0;
  consider_checkpoint();
  if (depth_ == path_.size()) {
    decision d;
    d.what = decision::kind::value;
    d.open = true;
    d.choices = n;
    count_budget(d);
    if (replaying_ && depth_ < script_.size()) {
      d.chosen = script_[depth_];
      if (d.chosen >= n)
        fail("the schedule does not fit the program: it was made from another one");
    }
    path_.push_back(d);
  }
  return path_[depth_++].chosen;
}

bool engine::affords(const decision& d, unsigned t) const noexcept {
  if (bounds_.preemptions == unlimited) return true;
  const bool pays = t != d.previous && (d.ready & bit(d.previous)) != 0;
  return d.preemptions + (pays ? 1 : 0) <= bounds_.preemptions;
}

void engine::schedule() {
  const unsigned t = choose_thread();
  if (threads_[current_].state == thread_state::ready && t == current_) return;
  if (t != current_) block_decision_ = last_decision_;
  if (t == current_) return;
  switch_to(t);
}

void engine::reach(const pending& next) {
  threads_[current_].next = next;
  threads_[current_].state = thread_state::ready;
  schedule();
  threads_[current_].state = thread_state::ready;
  record(next);
}

void engine::block() {
  schedule();
  threads_[current_].state = thread_state::ready;
}

// The deepest decision that still has a choice to try.
bool engine::next_run() {
  while (!path_.empty()) {
    decision& d = path_.back();
    if (d.what == decision::kind::value) {
      const bool affordable = bounds_.stale_reads == unlimited || d.stale < bounds_.stale_reads;
      if (d.open && affordable && d.chosen + 1 < d.choices) {
        ++d.chosen;
        return true;
      }
    } else if (d.open) {
      d.done |= bit(d.taken);
      const thread_mask left = d.wanted & d.enabled & ~d.done & ~d.asleep;
      for (unsigned t = 0; t < max_threads; ++t) {
        if ((left & bit(t)) == 0 || !affords(d, t)) continue;
        d.taken = static_cast<std::uint8_t>(t);
        return true;
      }
    }
    path_.pop_back();
  }
  return false;
}

}  // namespace model
