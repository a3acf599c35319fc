#include "timer/stop_waiters.hpp"

#include "base/clock_source.hpp"
#include "sched/wait/caller.hpp"
#include "sched/wait/wake_list.hpp"
#include "sched/worker.hpp"

#include <vigil/error.hpp>

#include <string>

namespace vigil::inline VIGIL_ABI::detail {

void stop_waiters::end_run(timer_record& t) noexcept {
  constexpr std::uint64_t change = timer_record::run_ended - timer_record::run;
  std::uint64_t left = t.uses.fetch_add(change) + change;
  if ((left & timer_record::counts) < timer_record::run && t.awaited.load()) tell(t);
  if ((left & timer_record::counts) != 0 || t.when.load() > 0) return;
  if (t.uses.compare_exchange_strong(left, timer_record::callback_destroyed)) t.destroy_callback();
}

void stop_waiters::tell(timer_record& t) noexcept {
  wake_list done;
  {
    const lock_guard guard(lock_);
    for (entry* e = entries_.front(); e != nullptr;) {
      entry& found = *e;
      e = entry_list::next(found);
      if (found.timer != &t) continue;
      entries_.remove(found);
      // A waiter whose wait has ended meanwhile takes itself out under this lock, so it
      // is alive here; it needs no delivery.
      done.claim(found, outcome::value);
    }
  }
  done.deliver(turn::next);
}

void stop_waiters::wait(timer_record& t, const wait_limit& limit, const char* call) {
  if (!t.is_running()) return;
  const fiber* const f = current_fiber();
  // ordering: the fiber's own word.
  if (f != nullptr && f->callback.load(order::relaxed) == &t) {
    throw wrong_place((std::string("vigil::") + call +
                       " inside the callback that it waits for would wait for itself: use stop()")
                          .c_str());
  }
  // On a worker's own stack the caller sleeps like a plain thread, since the end of a
  // scoped_timer must not throw; but not for long: the callback may need this worker.
  const bool in_handler = f == nullptr && current_worker() != nullptr;
  constexpr nanos patience = 1'000'000'000;
  const nanos gives_up_at = in_handler ? monotonic_now() + patience : never;
  const bool may_give_up = gives_up_at < limit.as_deadline();
  caller self(may_give_up ? limit.until(gives_up_at) : limit);
  if (!in_handler && self.may_not_wait()) self.refuse(call);
  entry mine;
  mine.timer = &t;
  self.open(mine);
  lock_.lock();
  t.awaited.store(true);
  if (!t.is_running()) {
    mine.claim(outcome::value);
    lock_.unlock();
    return;
  }
  entries_.push_back(mine);
  const outcome result = self.wait(mine.ticket, wait_reason::stop_and_wait, lock_, [&] {
    const lock_guard guard(lock_);
    if (mine.hook.linked) entries_.remove(mine);
  });
  if (result == outcome::timeout && may_give_up) {
    fatal(
        "a handler of the library, on a worker's own stack, has waited 1 s for the callback of the "
        "timer made at %s:%u (the end of a scoped_timer, or stop_and_wait), which may need "
        "that worker: call stop() there, or let a fiber own the timer",
        t.made_at.file,
        t.made_at.line);
  }
  self.throw_if_ended(result);
}

}  // namespace vigil::inline VIGIL_ABI::detail
