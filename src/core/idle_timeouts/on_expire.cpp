// The on_expire of an entry: how it begins, how it ends, and how callers wait for it (see
// TL1, TL2 and TL5 of timeout_core.hpp).
#include "core/idle_timeouts/timeout_core.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/wait/wake_list.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace VIGIL_DETAIL {

namespace {

// One of the run locks, on a cache line of its own.
struct alignas(cache_line) run_lock {
  spinlock lock{lock_rank::timeout_run};
};

spinlock& lock_of(const timeout_node& n) noexcept {
  static constinit run_lock locks[16];
  const auto address = reinterpret_cast<std::uintptr_t>(&n);
  return locks[(address >> 5 ^ address >> 12) % 16].lock;
}

// Checks that the caller may wait for r, which on the only worker's stack would be for
// ever.
void check_may_wait(const timeout_run& r) noexcept {
  if (const fiber* const f = current_fiber()) {
    check_may_park(*f);
    return;
  }
  const worker* const w = current_worker();
  if (w == nullptr || &w->sched != r.on->sched || w->sched.workers().size() > 1) return;
  fatal(
      "an entry is removed or destroyed, or its timeout list destroyed, inside a handler on the "
      "only worker's own stack, while an on_expire runs: it would be waited for for ever; do it on "
      "a fiber (go), or give the runtime more workers");
}

}  // namespace

// Returns the first entry if it is due, and otherwise arms the timer for it.
timeout_node* timeout_core::due(nanos now, unsigned& moves) noexcept {
  const timeout_order::found f = order_.first(now, moves);
  if (f.more) {
    arm_surely(at_once);
    return nullptr;
  }
  // Not by the time in its word now: the entry may no longer be the first.
  const nanos deadline = saturating_add(f.time, duration_);
  if (f.first != nullptr && deadline <= now) return f.first;
  arm_surely(deadline);
  return nullptr;
}

// Claims n. Returns false if n was touched meanwhile, or is put off (TL2).
bool timeout_core::begin(timeout_run& r, timeout_node& n, nanos touched) noexcept {
  r.lock = &lock_of(n);
  {
    const lock_guard guard(*r.lock);
    if (n.run.load() == nullptr) {
      if (!n.touched.compare_exchange_strong(touched, 0)) return false;
      r.entry = &n;
      n.run.store(&r);  // TL1
    }
  }
  if (r.entry == nullptr) {
    put_off(n);
    return false;
  }
  timeout_order::unlink(n);
  size_.store(size_.load() - 1);
  n.home.store(nullptr);
  runs_.push_back(r);
  retain();
  return true;
}

// Runs on a runner.
void timeout_core::run_due() {
  timeout_run r(this, current_fiber());
  {
    const lock_guard guard(lock_);
    armed_ = never;
    if (closed_) return;
    const nanos time = now();
    unsigned moves = moves_at_once;
    for (;;) {
      timeout_node* const n = due(time, moves);
      if (n == nullptr) return;
      const nanos touched = n->touched.load();
      if (saturating_add(touched, duration_) <= time && begin(r, *n, touched)) break;
      if (moves == 0) {
        arm_surely(at_once);
        return;
      }
      --moves;
    }
    if (due(time, moves) != nullptr) arm_surely(at_once);
    spare_room();
  }
  call(r);
}

void timeout_core::call(timeout_run& r) {
  struct guard {
    timeout_run& r;

    ~guard() { r.list->finish(r); }
  };

  const guard at_the_end{r};
  function_->call(*r.entry);
}

void timeout_core::finish(timeout_run& r) noexcept {
  {
    const lock_guard guard(lock_);
    runs_.remove(r);
  }
  wake_list done;
  {
    const lock_guard guard(*r.lock);
    if (r.entry != nullptr) r.entry->run.store(nullptr);
    while (timeout_run::waiting* const w = r.waiters.pop_front())
      done.claim(*w, outcome::value);
  }
  done.deliver();  // the entry may be gone by then
  release();
}

// Puts n off, as if it were touched now: into order_, even out of a batch.
void timeout_core::put_off(timeout_node& n) noexcept {
  const nanos time = now();
  nanos last = n.touched.load();
  while (last < time && !n.touched.compare_exchange_strong(last, time)) {
  }
  timeout_order::unlink(n);
  order_.insert(n, std::max(last, time));
  const nanos deadline = saturating_add(time, duration_);
  if (deadline < armed_) arm_surely(deadline);
}

// --- waiting for runs

void timeout_core::await_run(timeout_node& n, bool gone) noexcept {
  while (n.run.load() != nullptr) {
    detail::caller caller(detail::caller::unstoppable);
    spinlock& lock = lock_of(n);
    lock.lock();
    timeout_run* const r = n.run.load();
    if (r == nullptr || r->on == current_fiber()) {
      if (r != nullptr && gone) r->entry = nullptr;  // TL2
      lock.unlock();
      return;
    }
    check_may_wait(*r);
    timeout_run::waiting mine;
    caller.open(mine);
    r->waiters.push_back(mine);
    lock.unlock();
    caller.wait(mine.opened, wait_reason::on_expire);
  }
}

void timeout_core::end_closed() noexcept {
  const fiber* const self = current_fiber();
  timeout_function* function = nullptr;
  for (;;) {
    detail::caller caller(detail::caller::unstoppable);
    lock_.lock();
    timeout_run* r = runs_.front();
    while (r != nullptr && r->on == self)
      r = run_list::next(*r);
    if (r == nullptr) {
      if (runs_.empty()) function = std::exchange(function_, nullptr);
      lock_.unlock();
      break;
    }
    check_may_wait(*r);
    spinlock& held = *r->lock;
    held.lock();  // r is in runs_, so it has not claimed its waiters yet
    timeout_run::waiting mine;
    caller.open(mine);
    r->waiters.push_back(mine);
    lock_.unlock();
    held.unlock();
    caller.wait(mine.opened, wait_reason::on_expire);
  }
  if (function != nullptr) drop_function(function);  // TL5
  timer_->release();
  release();
}

namespace {

// The answer is exact: while the run lock is held no expiry of n begins or ends.
bool is_known(timeout_node& n) noexcept {
  const lock_guard guard(lock_of(n));
  const timeout_run* const r = n.run.load();
  return n.home.load() != nullptr || (r != nullptr && r->on != current_fiber());
}

}  // namespace

bool remove(timeout_node& n) noexcept {
  bool prevented = false;
  // Repeats if the on_expire has added n before it ended.
  do {
    prevented = timeout_core::take_out(n) || prevented;
    timeout_core::await_run(n, false);
  } while (is_known(n));
  return prevented;
}

void forget(timeout_node& n) noexcept {
  do {
    timeout_core::take_out(n);
    timeout_core::await_run(n, true);
  } while (is_known(n));
}

}  // namespace VIGIL_DETAIL
