// done_callback: the object that after_func(ctx, f) makes, a timer with a callback that
// the end of the context arms.
//
// The danger. The context may end, and the function be armed, while another thread stops
// it and is told that it will not run.
//
// The rule. The node's list of callbacks decides between the end and stop(): only one of
// them takes the registration out. If that was the end, the registration's lock decides
// between the end and stop_and_wait whether the timer is armed.
#include "core/cancel/context_core.hpp"
#include "core/sched/worker/turn_budget.hpp"
#include "core/timer/timer_service.hpp"

#include <vigil/error.hpp>

#include <utility>

namespace VIGIL_DETAIL {

// A registration is owned by its node's list, until it has run or was stopped, and by its
// handles. Taking it out of the list drops its handle of the record; its reference to the
// record, for stop_and_wait, lasts as long as the registration.
class done_registration final : public cancel_callback {
 public:
  done_registration(context_core& c, timer_record* r) noexcept : context(c), record(r) {
    run = [](cancel_callback& self) noexcept { static_cast<done_registration&>(self).fire(); };
    c.retain();
    // ordering: made from the handle that the caller hands over.
    r->references.fetch_add(1, order::relaxed);
    r->referenced.store(false);  // until no lock is held: see fire()
  }

  void fire() noexcept {
    bool armed_now = false;
    {
      const lock_guard guard(lock);
      if (!is_over) {
        try {
          record->service->reset_after(*record, 0);
          is_armed = armed_now = true;
        } catch (...) {
          is_over = true;  // its runtime is gone: the function dies without having run
        }
      }
    }
    // The function holds the program (all_done) until it has run. Giving up that hold may
    // mean telling the main fiber, under a lock of its own.
    if (armed_now) record->service->set_referenced(*record, true);
    release(record);
    release(this);
  }

  bool stop() noexcept {
    if (context.node == nullptr) {
      if (!waits_in_vain.exchange(false)) return false;
      release(record);
      return true;
    }
    if (!context.node->unlink(*this)) return false;
    bool was_over = false;
    {
      const lock_guard guard(lock);
      was_over = std::exchange(is_over, true);  // by stop_and_wait, in between
    }
    release(record);
    release(this);  // the list's; the caller has another
    return !was_over;
  }

  // The cancel may still be at other callbacks, or have just armed the record.
  bool stop_and_wait(const wait_limit& limit) {
    if (stop()) return true;
    if (context.node == nullptr) return false;
    const kept_limit kept(limit);  // the function may die in here
    {
      const lock_guard guard(lock);
      if (!is_armed) return !std::exchange(is_over, true);
    }
    const bool prevented = record->service->discard(*record);
    record->service->stop_and_wait(*record, limit, "done_callback::stop_and_wait");
    return prevented;
  }

  context_core& context;
  timer_record* const record;
  spinlock lock{lock_rank::done_callback};       // held while it is armed
  bool is_armed VIGIL_GUARDED_BY(lock) = false;  // once, for ever
  bool is_over VIGIL_GUARDED_BY(lock) = false;   // it will not be armed
  atomic<bool> waits_in_vain{false};             // for a context that is never done
  atomic<std::size_t> handles{1};
};

void retain(done_registration* r) noexcept {
  // ordering: made from a handle that the caller holds.
  r->handles.fetch_add(1, order::relaxed);
}

void release(done_registration* r) noexcept {
  // Pairs with the other decrements: the last one sees all that was done.
  if (r->handles.fetch_sub(1, order::acq_rel) != 1) return;
  if (r->waits_in_vain.load()) release(r->record);
  detail::release_record(*r->record);
  r->context.release();
  delete r;
}

done_registration* after_func(context_core* c, callback f, const site& from) {
  context_core& ctx = checked(c, "after_func");
  if (!f) throw_empty_function("vigil::after_func");
  timer_service& service = current_service(
      "after_func",
      "call it on a fiber. On a plain thread wait for the context's done(), or use stop_token_of");
  timer_record* const record = service.make_record(std::move(f), 0, false, from);
  done_registration* made = nullptr;
  try {
    made = new done_registration(ctx, record);
  } catch (...) {
    release(record);
    throw;
  }
  if (ctx.node == nullptr) {
    made->waits_in_vain.store(true);
  } else {
    retain(made);
    if (!ctx.node->link(*made)) made->fire();
  }
  return made;
}

bool stop(done_registration* r) noexcept {
  return r->stop();
}

bool stop_and_wait(done_registration* r, const wait_limit& limit) {
  return in_turn(limit, [r](const wait_limit& l) { return r->stop_and_wait(l); });
}

const timer_record* record_of(const done_registration* r) noexcept {
  return r->record;
}

}  // namespace VIGIL_DETAIL
