// The reduction: an order of two operations is tried only if they meet, that is, if they
// touch the same location and one of them writes.
#include "explorer/engine.hpp"

#include <algorithm>

namespace model {
namespace {

constexpr std::uint64_t longest_run = 100'000;

}  // namespace

void engine::want(std::int32_t index, unsigned t) {
  if (index < 0) return;
  decision& d = path_[static_cast<std::size_t>(index)];
  if (d.what != decision::kind::thread) return;
  // A thread that sleeps there goes on only after another one that meets it.
  d.wanted |= (d.enabled & ~d.asleep & bit(t)) != 0 ? bit(t) : d.enabled;
}

// The present operation of thread t meets an earlier one of thread q, so the other order
// is to be tried.
void engine::want_before(unsigned q,
                         const location::access& a,
                         unsigned t,
                         const step_clock& clock_of_present) {
  if (a.decision < 0) return;
  if (!uses_sleep()) {
    want(a.decision, t);
    // With few preemptions the other order may be within reach only if the thread in
    // between did not even begin its turn.
    want(a.block, t);
    return;
  }
  // The candidates that may begin it are the threads whose first operation since then
  // depends on no earlier one. Threads that sleep at that decision have begun there
  // before.
  decision& d = path_[static_cast<std::size_t>(a.decision)];
  std::size_t first = history_.size();
  while (first > 0 && !(history_[first - 1].thread == q && history_[first - 1].after[q] == a.step))
    --first;
  thread_mask seen = 0;
  thread_mask initial = 0;
  between_.clear();
  for (std::size_t j = first; j <= history_.size(); ++j) {
    const bool present = j == history_.size();
    const unsigned who = present ? t : history_[j].thread;
    const step_clock& after = present ? clock_of_present : history_[j].after;
    if (!present && after[q] >= a.step) continue;  // comes after the earlier one
    if ((seen & bit(who)) == 0) {
      seen |= bit(who);
      bool begins = true;
      for (const std::size_t k : between_) {
        const past_step& before = history_[k];
        if (after[before.thread] >= before.after[before.thread]) begins = false;
      }
      if (begins) initial |= bit(who);
    }
    if (!present) between_.push_back(j);
  }
  if ((initial & (d.wanted | d.asleep)) != 0) return;
  const thread_mask possible = initial & d.enabled;
  d.wanted |= possible != 0 ? possible & (~possible + 1) : d.enabled;
}

bool engine::uses_sleep() const noexcept {
  return bounds_.preemptions == unlimited && bounds_.reduce;
}

void engine::record(const pending& done) {
  if (++steps_ > longest_run) fail("a run has more than 100 000 operations: does it loop?");
  if (depth_ == path_.size()) ++report_.states;
  thread& self = threads_[current_];
  const std::uint32_t step = self.clock[current_] + 1;
  if (done.location < 0) {
    self.clock[current_] = step;
    if (uses_sleep()) history_.push_back({current_, self.clock});
    return;
  }
  location& l = memory_.at(static_cast<unsigned>(done.location));
  const step_clock& after = done.writes ? l.after_all : l.after_writes;
  // The clock is written as a whole: a part would hold up the whole that is read next.
  step_clock joined;
  for (unsigned i = 0; i < max_threads; ++i)
    joined[i] = std::max(i == current_ ? step : self.clock[i], after[i]);
  for (unsigned q = 0; q < thread_count_; ++q) {
    if (q == current_) continue;
    const location::access& a = done.writes ? l.last_any[q] : l.last_write[q];
    if (a.step > self.clock[q]) want_before(q, a, current_, joined);
  }
  self.clock = joined;
  for (unsigned i = 0; i < max_threads; ++i)
    l.after_all[i] = std::max(l.after_all[i], joined[i]);
  for (unsigned i = 0; done.writes && i < max_threads; ++i)
    l.after_writes[i] = std::max(l.after_writes[i], joined[i]);
  if (uses_sleep()) history_.push_back({current_, self.clock});
  const location::access here{joined[current_], last_decision_, block_decision_};
  l.last_any[current_] = here;
  if (done.writes) l.last_write[current_] = here;
  // A thread that slept because its next operation had been tried wakes up if this one
  // meets it.
  for (unsigned q = 0; asleep_ != 0 && q < thread_count_; ++q) {
    if ((asleep_ & bit(q)) == 0) continue;
    const pending& his = threads_[q].next;
    const bool meets = his.location == done.location && (his.writes || done.writes);
    if (meets || threads_[q].state != thread_state::ready) asleep_ &= ~bit(q);
  }
}

void engine::offer_timeouts(const void* word) {
  for (unsigned t = 0; t < thread_count_; ++t) {
    const thread& it = threads_[t];
    if (it.state != thread_state::sleeping || it.until == INT64_MAX) continue;
    if (word != nullptr && it.futex != word) continue;
    want(last_decision_, t);
    want(block_decision_, t);
  }
}

}  // namespace model
