#include "core/timer/timer_fiber.hpp"

#include "core/sched/call/park.hpp"
#include "core/sched/worker/system_fiber.hpp"

#include <thread>
#include <utility>

namespace VIGIL_DETAIL {

struct timer_fiber::batch {
  fiber_chain ready;
  timer_record* callbacks[batch_size];
  std::size_t callback_count = 0;
  heap_entry again[batch_size];  // go back into the heap
  std::size_t again_count = 0;
  std::size_t held = 0;  // periodic timers, which keep their slot
};

bool fire_again::at(nanos deadline) noexcept {
  const timer_fiber::neighbours& with = of.with_;
  deadline = runtime_timer::clamp_deadline(deadline);
  with.heap.draw_tie(timer);
  const bool was_pending = timer.when.exchange(deadline) > 0;
  if (!was_pending) with.owner.count(timer_event::armed);
  nanos key = 0;
  if (timer.file(deadline, key)) {
    into.again[into.again_count++] = heap_keeper::entry_for(timer, key);
  }
  return was_pending;
}

void timer_fiber::open() {
  ending_.store(false);
  with_.sched.board.parked_timer_fiber.store(
      &make_system_fiber<&timer_fiber::body>(with_.sched, "timer fiber", fiber_role::timer, *this));
}

void timer_fiber::abort_open() noexcept {
  retire_system_fiber(*with_.sched.board.parked_timer_fiber.exchange(nullptr));
}

void timer_fiber::end() noexcept {
  // Parked, or about to park on another worker.
  fiber* self = nullptr;
  while ((self = with_.sched.board.parked_timer_fiber.exchange(nullptr)) == nullptr)
    std::this_thread::yield();
  ending_.store(true);  // only now: no worker can enter it any more
  self->sched->make_runnable(*self);
}

void timer_fiber::body() noexcept {
  fiber& self = *current_fiber();
  for (;;) {
    if (ending_.load()) return;
    bool more = false;
    for (std::size_t i = 0; i < batches_per_turn; ++i) {
      more = fire_due(with_.sched.clock.now());
      if (!more) break;
    }
    const nanos next = with_.sched.board.next_deadline.load();
    const wait_reason reason = next == never ? wait_reason::timer_empty : wait_reason::timer_note;
    // ordering: present_wait; published by fiber::has_left().
    self.present.reason.store(reason, order::relaxed);
    self.present.until.store(next, order::relaxed);  // ordering: as above
    current_worker()->leave_timer_fiber(more);
  }
}

// Fires one bounded batch of due timers; true if there may be more. No thread is locked
// out while the timers are looked at: arming goes to the intakes, and the heap is locked
// only to pop and to put back.
bool timer_fiber::fire_due(nanos now) noexcept {
  heap_entry due[batch_size];
  const std::size_t n =
      with_.heap.take_due(now, due, batch_size, std::exchange(slots_given_up_, 0));
  if (n == 0) return false;
  batch b;
  for (std::size_t i = 0; i < n; ++i) {
    // Records and waiters lie anywhere: fetch them while others are handled.
    if (i + 8 < n) due[i + 8].timer->prefetch();
    if (i + 4 < n) due[i + 4].timer->prefetch_waiter();
    surface(due[i], now, b);
  }
  if (!b.ready.empty()) current_worker()->sched.ready_all(b.ready);
  if (b.callback_count != 0) with_.callbacks.push_due(b.callbacks, b.callback_count, now);
  if (b.again_count != 0) with_.heap.put_back(b.again, b.again_count);
  slots_given_up_ = n - b.again_count - b.held;
  return n == batch_size || with_.sched.board.next_deadline.load() <= now;
}

void timer_fiber::surface(const heap_entry& e, nanos now, batch& b) noexcept {
  runtime_timer& t = *e.timer;
  nanos key = e.key;
  if (!t.filed.compare_exchange_strong(key, runtime_timer::nothing)) {
    release_record(t);  // dead: another entry speaks for the timer, or none
    return;
  }
  for (;;) {
    const nanos deadline = t.when.load();
    if (deadline <= 0) break;
    if (deadline > now) {
      // The timer was moved later meanwhile. A thread that arms it at this moment sees
      // `nothing` and files an entry, too: one of the two succeeds.
      nanos expected = runtime_timer::nothing;
      const nanos later = t.key_for(deadline);
      if (!t.filed.compare_exchange_strong(expected, later)) break;
      b.again[b.again_count++] = heap_keeper::entry_for(t, later);
      return;
    }
    switch (t.kind) {
      case timer_kind::fiber_ready:
        if (!fire_wait(t, deadline, now, b)) continue;
        release_record(t);
        return;
      case timer_kind::go_func: {
        auto& record = static_cast<timer_record&>(t);
        if (record.is_periodic) {
          // The runner holds the timer until its last look at `when`, so no two runs
          // overlap; the heap slot stays set aside.
          nanos expected = runtime_timer::nothing;
          if (!t.filed.compare_exchange_strong(expected, runtime_timer::held)) {
            release_record(t);
            return;
          }
          ++b.held;
        }
        note_fired(timer_kind::go_func, now - deadline);
        b.callbacks[b.callback_count++] = &record;
        return;
      }
      case timer_kind::send_time: {
        nanos expected = deadline;
        if (!t.when.compare_exchange_strong(expected, runtime_timer::idle)) continue;
        note_fired(timer_kind::send_time, now - deadline);
        fire_again again{*this, t, b};
        t.send.function(t.send.argument, deadline, &again);
        release_record(t);
        return;
      }
    }
  }
  release_record(t);
}

// A callback is only due now: the fiber that runs it counts it.
void timer_fiber::note_fired(timer_kind kind, nanos late) noexcept {
  late_.note(late);
  intake& in = *with_.owner.own_intake();
  const bool is_due = kind == timer_kind::go_func;
  if (!is_due) in.count(timer_event::fired).add();
  if (!recorder_is_built || in.log == nullptr) return;
  const event_kind event = is_due ? event_kind::timer_due : event_kind::timer_fired;
  in.log->fired(event, static_cast<std::uint16_t>(kind), late);
}

// Ends a wait by its deadline. While `when` is `firing`, disarm() keeps the waiter alive.
bool timer_fiber::fire_wait(runtime_timer& t, nanos seen, nanos now, batch& b) noexcept {
  if (!t.when.compare_exchange_strong(seen, runtime_timer::firing)) return false;
  note_fired(timer_kind::fiber_ready, now - seen);
  waiter& w = *t.wait.whose;
  if (!w.claim(t.wait.opened, outcome::timeout)) {
    // The wait ended otherwise; its owner may be in disarm(), waiting for this
    // to let go of the waiter. Pairs with the acquire there.
    t.when.store(runtime_timer::idle, order::release);
    return true;
  }
  // The owner does not disarm after a timeout: `firing` stays until it arms again, and
  // means the same as `idle`.
  if (w.type() == waiter::kind::of_fiber) {
    // Readied with the others of the batch; the fiber cannot go on before that.
    b.ready.push_back(w.as_fiber());
  } else {
    w.deliver();
  }
  return true;
}

}  // namespace VIGIL_DETAIL
