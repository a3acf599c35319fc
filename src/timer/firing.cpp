// The timer fiber: takes due timers out of the heap in bounded batches and does
// one of three things with each, none of which waits or calls user code (S4).
#include "sched/park.hpp"
#include "timer/timer_service.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace vigil::internal {

struct timer_service::batch {
  fiber_chain ready;
  timer_record* callbacks[batch_size];
  std::size_t callback_count = 0;
  heap_entry again[batch_size];
  std::size_t again_count = 0;
  std::size_t held = 0;
};

// The slot that the timer's entry has just left is still set aside (S3).
class timer_service::fire_again final : public runtime_timer::refire {
 public:
  fire_again(timer_service& service, runtime_timer& t, batch& b) noexcept
      : service_(service), timer_(t), batch_(b) {}

  bool at(nanos deadline) noexcept override {
    deadline = runtime_timer::clamp_deadline(deadline);
    const bool was_pending = timer_.when.exchange(deadline) > 0;
    if (!was_pending) service_.owner_.count(timer_event::armed);
    nanos key = 0;
    if (timer_.file(deadline, key)) {
      batch_.again[batch_.again_count++] = service_.parts_->heap.entry_for(timer_, key);
    }
    return was_pending;
  }

 private:
  timer_service& service_;
  runtime_timer& timer_;
  batch& batch_;
};

void timer_service::timer_fiber_body() noexcept {
  fiber& self = *current_fiber();
  for (;;) {
    if (timer_ending_.load()) return;
    bool more = false;
    for (std::size_t i = 0; i < batches_per_turn; ++i) {
      more = fire_due(sched()->clock.now());
      if (!more) break;
    }
    const nanos next = sched()->next_deadline.load();
    // ordering: the dump's fields.
    self.reason.store(next == never ? wait_reason::timer_empty : wait_reason::timer_note, relaxed);
    self.waiting_until.store(next, relaxed);  // ordering: as above
    current_worker()->leave_to(more ? after_switch::timer_fiber_turn
                                    : after_switch::park_timer_fiber);
  }
}

// One bounded batch of due timers; true if there may be more. Nobody is locked
// out while the timers are looked at: arming goes to the intakes, and the heap
// is locked only to pop and to put back.
bool timer_service::fire_due(nanos now) noexcept {
  heap_entry due[batch_size];
  const std::size_t n =
      parts_->heap.take_due(now, due, batch_size, std::exchange(fired_before_, 0));
  if (n == 0) return false;
  batch b;
  for (std::size_t i = 0; i < n; ++i) {
    // Records and waiters lie anywhere: fetch them while others are handled.
    if (i + 8 < n) due[i + 8].timer->prefetch();
    if (i + 4 < n) due[i + 4].timer->prefetch_waiter();
    surface(due[i], now, b);
  }
  if (!b.ready.empty()) sched()->ready_all(b.ready);
  if (b.callback_count != 0) parts_->callbacks.push_due(b.callbacks, b.callback_count, now);
  if (b.again_count != 0) parts_->heap.put_back(b.again, b.again_count);
  fired_before_ = n - b.again_count - b.held;
  return n == batch_size || sched()->next_deadline.load() <= now;
}

void timer_service::surface(heap_entry e, nanos now, batch& b) noexcept {
  runtime_timer& t = *e.timer;
  nanos key = e.key;
  if (!t.filed.compare_exchange_strong(key, runtime_timer::nothing)) {
    drop_reference(t);  // a duplicate: another entry speaks for the timer
    return;
  }
  for (;;) {
    const nanos deadline = t.when.load();
    if (deadline <= 0) break;
    if (deadline > now) {
      // Moved later meanwhile. Who arms at this moment sees `nothing` and
      // files himself: one of the two succeeds.
      nanos expected = runtime_timer::nothing;
      const nanos later = t.key_for(deadline);
      if (!t.filed.compare_exchange_strong(expected, later)) break;
      e.key = later;
      e.slack_us = t.slack_us.load(relaxed);  // ordering: as in entry_for()
      b.again[b.again_count++] = e;
      return;
    }
    switch (t.kind) {
      case timer_kind::fiber_ready:
        if (!fire_wait(t, deadline, b)) continue;
        note_lateness(now - deadline);
        drop_reference(t);
        return;
      case timer_kind::go_func: {
        auto& record = static_cast<timer_record&>(t);
        if (record.is_periodic) {
          // The runner holds the timer until it has looked at `when` last, so
          // no two runs overlap; its heap slot stays set aside.
          nanos expected = runtime_timer::nothing;
          if (!t.filed.compare_exchange_strong(expected, runtime_timer::held)) {
            drop_reference(t);
            return;
          }
          ++b.held;
        }
        note_lateness(now - deadline);
        b.callbacks[b.callback_count++] = &record;
        return;
      }
      case timer_kind::send_time: {
        nanos expected = deadline;
        if (!t.when.compare_exchange_strong(expected, runtime_timer::idle)) continue;
        owner_.count(timer_event::fired);
        note_lateness(now - deadline);
        fire_again again(*this, t, b);
        t.send.function(t.send.argument, deadline, again);
        drop_reference(t);
        return;
      }
    }
  }
  drop_reference(t);
}

// Ends a wait by its deadline. While `when` says firing, the waiter is kept
// alive by disarm().
bool timer_service::fire_wait(runtime_timer& t, nanos seen, batch& b) noexcept {
  if (!t.when.compare_exchange_strong(seen, runtime_timer::firing)) return false;
  owner_.count(timer_event::fired);
  waiter& w = *t.wait.who;
  if (!w.claim(t.wait.which, outcome::timeout)) {
    // The wait ended otherwise; its owner may be in disarm(), waiting for this
    // to let go of the waiter. Pairs with the acquire there.
    t.when.store(runtime_timer::idle, release);
    return true;
  }
  // The owner does not disarm after a timeout: `firing` stays until it arms
  // again, and says as much as `idle`.
  if (w.what() == waiter::kind::of_fiber) {
    // Readied with the others of the batch. The fiber cannot go on before.
    b.ready.push_back(w.as_fiber());
  } else {
    w.deliver();
  }
  return true;
}

void timer_service::note_lateness(nanos late) noexcept {
  const auto n = static_cast<std::uint64_t>(late < 0 ? 0 : late);
  const auto bucket = static_cast<std::size_t>(std::bit_width(n / 1000));
  late_[std::min(bucket, late_.size() - 1)].add();
  // ordering: a statistic with one writer.
  if (n > latest_fire_.load(relaxed)) latest_fire_.store(n, relaxed);
}

}  // namespace vigil::internal
