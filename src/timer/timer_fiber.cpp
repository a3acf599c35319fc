#include "timer/timer_fiber.hpp"

#include "sched/fiber/park.hpp"
#include "timer/system_fiber.hpp"

#include <thread>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {

struct timer_fiber::batch {
  fiber_chain ready;
  timer_record* callbacks[batch_size];
  std::size_t callback_count = 0;
  heap_entry again[batch_size];
  std::size_t again_count = 0;
  std::size_t held = 0;
};

// The slot that the timer's entry has just left is still set aside (S3).
class timer_fiber::fire_again final : public runtime_timer::refire {
 public:
  fire_again(timer_fiber& of, runtime_timer& t, batch& b) noexcept
      : of_(of), timer_(t), batch_(b) {}

  bool at(nanos deadline) noexcept override {
    deadline = runtime_timer::clamp_deadline(deadline);
    const bool was_pending = timer_.when.exchange(deadline) > 0;
    if (!was_pending) of_.owner_.count(timer_event::armed);
    nanos key = 0;
    if (timer_.file(deadline, key)) {
      batch_.again[batch_.again_count++] = of_.heap_.entry_for(timer_, key);
    }
    return was_pending;
  }

 private:
  timer_fiber& of_;
  runtime_timer& timer_;
  batch& batch_;
};

void timer_fiber::open() {
  ending_.store(false);
  sched_.parked_timer_fiber.store(
      &make_system_fiber<&timer_fiber::body>(sched_, "timer fiber", fiber_role::timer, *this));
}

void timer_fiber::abort_open() noexcept {
  retire_system_fiber(sched_, *sched_.parked_timer_fiber.exchange(nullptr));
}

void timer_fiber::end() noexcept {
  // Parked, or about to park on another worker.
  fiber* self = nullptr;
  while ((self = sched_.parked_timer_fiber.exchange(nullptr)) == nullptr)
    std::this_thread::yield();
  ending_.store(true);  // only now: nobody else can enter it any more
  sched_.make_runnable(*self);
}

void timer_fiber::body() noexcept {
  fiber& self = *current_fiber();
  for (;;) {
    if (ending_.load()) return;
    bool more = false;
    for (std::size_t i = 0; i < batches_per_turn; ++i) {
      more = fire_due(sched_.clock.now());
      if (!more) break;
    }
    const nanos next = sched_.next_deadline.load();
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
bool timer_fiber::fire_due(nanos now) noexcept {
  heap_entry due[batch_size];
  const std::size_t n = heap_.take_due(now, due, batch_size, std::exchange(slots_given_up_, 0));
  if (n == 0) return false;
  batch b;
  for (std::size_t i = 0; i < n; ++i) {
    // Records and waiters lie anywhere: fetch them while others are handled.
    if (i + 8 < n) due[i + 8].timer->prefetch();
    if (i + 4 < n) due[i + 4].timer->prefetch_waiter();
    surface(due[i], now, b);
  }
  if (!b.ready.empty()) sched_.ready_all(b.ready);
  if (b.callback_count != 0) callbacks_.push_due(b.callbacks, b.callback_count, now);
  if (b.again_count != 0) heap_.put_back(b.again, b.again_count);
  slots_given_up_ = n - b.again_count - b.held;
  return n == batch_size || sched_.next_deadline.load() <= now;
}

void timer_fiber::surface(heap_entry e, nanos now, batch& b) noexcept {
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
      // Moved later meanwhile. A thread that arms at this moment sees `nothing`
      // and files an entry, too: one of the two succeeds.
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
        late_.note(now - deadline);
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
        late_.note(now - deadline);
        b.callbacks[b.callback_count++] = &record;
        return;
      }
      case timer_kind::send_time: {
        nanos expected = deadline;
        if (!t.when.compare_exchange_strong(expected, runtime_timer::idle)) continue;
        owner_.count(timer_event::fired);
        late_.note(now - deadline);
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
bool timer_fiber::fire_wait(runtime_timer& t, nanos seen, batch& b) noexcept {
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

}  // namespace vigil::inline VIGIL_ABI::detail
