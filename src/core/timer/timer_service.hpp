// timer_service: one heap, one timer fiber, and an intake for each worker in front.
//
//  any fiber or thread                       timer fiber                kernel
//  arm / stop / reset ──▶ [intake] ──▶ heap: {key, tie, timer*}[] ──▶ note
//                                         │ due                (a worker's watch)
//                        send_time │ go_func │ fiber_ready ──▶ run queues
//
// The heap's invariants, HK1 to HK3: heap_keeper.hpp.
//
// TS1 User code, destructors included, never runs on the timer fiber, nor
//     under any lock here.
//
// TS2 The end of the runtime destroys the captures of all its callbacks, whatever handles
//     there are, on its own thread. After that nothing of the runtime can be armed.
//
// The service is type-stable: a handle that outlives its runtime still finds the
// service's memory, and learns from the generation that its runtime is gone.
#pragma once

#include "core/base/record_pool.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/run_core.hpp"
#include "core/sched/wait/timer_seam.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/timer/callback_queue.hpp"
#include "core/timer/heap_keeper.hpp"
#include "core/timer/keepalive.hpp"
#include "core/timer/records.hpp"
#include "core/timer/run_listeners.hpp"
#include "core/timer/runner_pool.hpp"
#include "core/timer/runtime_timer.hpp"
#include "core/timer/stop_waiters.hpp"
#include "core/timer/timer_fiber.hpp"
#include "core/timer/timer_owner.hpp"

#include <vigil/stats.hpp>

#include <cstdint>
#include <optional>

namespace VIGIL_DETAIL {

class timer_service final : public timer_seam {
 public:
  // Attaches a service to the scheduler, until end(). Throws std::bad_alloc.
  static timer_service& begin(scheduler& owner);
  void end() noexcept;

  // --- arming and stopping. Deadlines are on the scheduler's clock. Each call returns
  // whether the timer was pending before. Arming throws std::bad_alloc with nothing
  // changed. `parking`: the calling fiber parks right afterwards and leaves the look for
  // a sleeper (HK2) to its worker; if it does not park, it must call
  // timer_board::cover_owed().
  bool arm_at(runtime_timer& t, nanos deadline, bool parking = false);
  bool stop(runtime_timer& t) noexcept;

  bool stop(timer_record& t) noexcept {
    if (keepalive_.counts()) [[unlikely]]
      return stop_counted(t);
    return stop(static_cast<runtime_timer&>(t));
  }

  // Implements ref() and unref().
  void set_referenced(timer_record& t, bool on) noexcept {
    const keepalive::change change(keepalive_, t);
    t.referenced.store(on);
  }

  // --- making timers
  // Makes a timer that hands the time to the channel layer; the caller owns its
  // reference. `run` is the generation of the timer's runtime.
  runtime_timer* make_send(runtime_timer::send_function f, void* argument, std::uint32_t run) {
    runtime_timer* const t = make_plain_record(timer_kind::send_time, *this, run);
    t->send = {f, argument};
    return t;
  }

  timer_record* make_record(callback&& f, nanos period, bool from_end, const site& from) {
    return make_callback_record(*this, generation(), std::move(f), period, from_end, from);
  }

  // --- callbacks
  // What an arming found, or that a stop_and_wait holds it back: stop_waiters.hpp.
  enum class armed : std::uint8_t { was_idle, was_pending, held_back };

  // Arm t for `delay` from now, or for a deadline. Like arm_at(), but a one-time timer
  // that is due already never enters the heap.
  armed reset_after(timer_record& t, nanos delay);
  armed reset_at(timer_record& t, nanos deadline);

  // Stops t, waits until no run is under way, or until the limit's time is over, and
  // returns whether a run was prevented, one that was armed meanwhile included. `call` is
  // the name of what the user has called. Throws as a wait does, wrong_place inside the
  // callback, std::bad_alloc if the limit's time cannot be armed; t is stopped then.
  bool stop_and_wait(timer_record& t,
                     const wait_limit& limit,
                     const char* call = "timer::stop_and_wait") {
    return stop_waiters_.wait(t, limit, call);
  }

  // stop() for a caller that has a reference and no handle. It counts as a run, so that a
  // handle dropped at the same moment does not miss it (TR2).
  bool discard(timer_record& t) noexcept;
  // Queues t as due, behind all others. Takes over a handle of the caller's, unless it
  // throws runtime_gone.
  void post(timer_record& t);
  // Queues t when the fiber next gives up its worker (callback_queue.hpp). Takes over a
  // handle of the caller's.
  void defer(fiber& self, timer_record& t) noexcept;

  run_listeners& listeners() noexcept { return listeners_; }

  // The records of callbacks: of this service alone, so that the end of its runtime finds
  // them all. Whole cache lines: arming and stopping touch one.
  record_pool callback_records{(sizeof(timer_record) + 63) / 64 * 64};

  // --- seam
  void arm(waiter& w, ticket t, nanos deadline) override;
  void disarm(waiter& w) noexcept override;
  void forget(waiter& w) noexcept override;

  bool tidy() noexcept override { return parts_->heap.tidy(); }

  nanos second_deadline() noexcept override { return parts_->heap.second_deadline(); }

  bool anything_pending() noexcept override { return parts_->heap.pending() != 0; }

  bool anything_due(nanos now) noexcept override { return parts_->heap.anything_due(now); }

  bool holds_program() const noexcept override { return keepalive_.holds_program(); }

  std::size_t list_holders(timer_holder* out, std::size_t room) noexcept override;

  bool has_callbacks() const noexcept override { return parts_->runners.has_work(); }

  void release_deferred(fiber& f) noexcept override { parts_->callbacks.push_deferred(f); }

  fiber* take_runner() noexcept override { return parts_->runners.take(); }

  // Writes the timers that are due next to `out`, the earliest first, up to `room` of
  // them, and returns how many it wrote. The deadlines of waits are not among them, and a
  // timer that moves meanwhile may be missed. A timer of the channel layer has no place
  // (made_at.file is null). Walks the heap.
  VIGIL_FOR_IO std::size_t list_next(timer_holder* out, std::size_t room) noexcept;

  void open() override;
  void abort_open() noexcept override;
  void discard_callbacks() noexcept override;
  void end_fibers() noexcept override;
  void add_stats(runtime_stats& s) const noexcept override;

  // --- whose timers these are: timer_owner.hpp
  scheduler* sched() const noexcept { return owner_.sched(); }

  nanos now_in(std::uint32_t run) noexcept { return owner_.now_in(run); }

  bool is_of_this_run(const runtime_timer& t) const noexcept { return is_this_run(t.generation); }

  bool is_this_run(std::uint32_t run) const noexcept { return owner_.is_this_run(run); }

  bool is_in_run(std::uint32_t run) const noexcept { return owner_.is_in_run(run); }

  std::uint32_t generation() const noexcept { return owner_.generation(); }

 private:
  friend class clock_callback;  // keeps a callback by a run of its own
  friend struct debug_layout;
  friend struct test_access;
  timer_service() = default;

  armed reset(timer_record& t, nanos deadline, nanos now, intake* own);
  armed reset_with_care(timer_record& t, nanos deadline, nanos now, intake* own);
  bool arm_outside(runtime_timer& t, nanos deadline);
  bool stop_counted(timer_record& t) noexcept;
  void make_due(timer_record& t) noexcept;
  void run_ends() noexcept;

  timer_owner owner_;
  keepalive keepalive_{owner_};

  // These exist while a runtime uses the service.
  struct parts {
    parts(scheduler& sched, timer_owner& owner, keepalive& kept_alive, stop_waiters& stops)
        : heap(sched, owner),
          callbacks(sched.board),
          runners({.sched = run_of(sched),
                   .owner = owner,
                   .kept_alive = kept_alive,
                   .stops = stops,
                   .heap = heap,
                   .callbacks = callbacks}),
          firing({.sched = sched, .owner = owner, .heap = heap, .callbacks = callbacks}) {}

    heap_keeper heap;
    callback_queue callbacks;
    runner_pool runners;
    timer_fiber firing;
  };

  std::optional<parts> parts_;

  run_listeners listeners_;  // including those of earlier runtimes
  stop_waiters stop_waiters_;
};

// The service behind the scheduler's seam.
inline timer_service& service_of(scheduler& s) noexcept {
  return static_cast<timer_service&>(s.timers());
}

// Posts a handler of io::executor(): unlike posted functions, it may start even while the
// run stops. Throws as post_to() does.
VIGIL_FOR_IO void post_handler_to(scheduler& sched, callback f, const site& from);

// The service of the calling thread's runtime. If the thread has none, throws wrong_place
// with the message "vigil::" `call` ": " `advice`.
timer_service& current_service(const char* call, const char* advice);

}  // namespace VIGIL_DETAIL
