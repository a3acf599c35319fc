// The functions that <vigil/clocks.hpp> and <vigil/testing.hpp> call.
#include "core/clocks/clock_callback.hpp"
#include "core/clocks/clock_channel.hpp"
#include "core/clocks/clock_hub.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sched/worker/turn_budget.hpp"

#include <vigil/clocks.hpp>
#include <vigil/detail/empty_function.hpp>
#include <vigil/error.hpp>
#include <vigil/testing.hpp>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace VIGIL_PUBLIC {

namespace detail {
namespace {

// A sleeping fiber. A change of the clocks ends the wait, and the fiber looks again.
class clock_sleep final : private clock_follower {
 public:
  clock_sleep(clock_hub& hub, waiter& w, ticket t) noexcept : hub_(hub), wait_{&w, t} {
    hub_.add(*this);
  }

  ~clock_sleep() { hub_.remove(*this); }

 private:
  bool keep() noexcept override { return wait_.claim(outcome::value); }

  bool clock_changed() noexcept override {
    wait_.whose->deliver();
    return true;
  }

  clock_hub& hub_;
  open_wait wait_;
};

const std::shared_ptr<clock_hub>& hub_here(const char* call) {
  timer_service& service = current_service(call, "call it on a fiber");
  return clock_hub::of(*service.sched());
}

clock_channel& channel_of(channel_core* c) noexcept {
  return *static_cast<clock_channel*>(c);
}

const clock_channel& channel_of(const channel_core* c) noexcept {
  return *static_cast<const clock_channel*>(c);
}

channel_core* make_clock_channel(const std::shared_ptr<clock_hub>& hub,
                                 clock_kind kind,
                                 nanos when,
                                 nanos period) {
  pending_mark mark(*hub);
  auto* const made = new clock_channel(hub, kind, when, period);
  mark.commit();
  return made;
}

void check_aligned(nanos period) {
  if (period > 0) return;
  throw std::invalid_argument(
      "vigil::ticker::aligned: the period must be longer than zero; to end the ticker, call "
      "stop()");
}

}  // namespace

std::int64_t now_on(clock_kind kind) noexcept {
  return clock_hub::now_in(current_scheduler(), kind);
}

namespace {

// Each round waits for the present image of the deadline (CK1).
void sleep_on_now(clock_kind kind, std::int64_t when, const wait_limit& limit) {
  caller self(limit);
  if (!self.is_fiber()) {
    require_fiber(kind == clock_kind::wall ? "wall::sleep_until"
                                           : "boot::sleep_until or sleep_for");
  }
  if (now_on(kind) >= when) return self.throw_if_stopped();
  if (self.may_not_wait()) self.refuse("sleep");
  clock_hub& hub = *hub_here("sleep_until");
  const pending_mark pending(hub);
  do {
    const ticket t = self.open();
    const clock_sleep round(hub, self.own_waiter(), t);
    caller timed(limit.until(hub.image(kind, when)));
    self.throw_if_ended(timed.wait_asleep(t));
  } while (hub.now(kind) < when);
}

}  // namespace

void sleep_on(clock_kind kind, std::int64_t when, const wait_limit& limit) {
  if (when == never) {
    sleep(limit.until(never));
    return;
  }
  in_turn(limit, [kind, when](const wait_limit& l) { sleep_on_now(kind, when, l); });
}

// --- timers and tickers with a channel

channel_core* make_clock_timer(clock_kind kind, std::int64_t when) {
  return make_clock_channel(
      hub_here(kind == clock_kind::wall ? "wall::timer" : "boot::timer"), kind, when, 0);
}

channel_core* make_aligned(std::int64_t period) {
  check_aligned(period);
  const std::shared_ptr<clock_hub>& hub = hub_here("ticker::aligned");
  const nanos first = next_full(hub->now(clock_kind::wall), period);
  return make_clock_channel(hub, clock_kind::wall, first, period);
}

bool stop_clock_timer(channel_core* timer) noexcept {
  return channel_of(timer).stop();
}

bool reset_clock_timer(channel_core* timer, std::int64_t when) {
  return channel_of(timer).reset(when, 0);
}

bool reset_aligned(channel_core* ticker, std::int64_t period) {
  check_aligned(period);
  clock_channel& c = channel_of(ticker);
  return c.reset(next_full(c.now(), period), period);
}

std::int64_t deadline_on_clock(const channel_core* timer) noexcept {
  return channel_of(timer).deadline();
}

std::uint64_t missed_on_clock(const channel_core* ticker) noexcept {
  return channel_of(ticker).missed();
}

// --- callbacks

clock_callback* after_func_on(
    clock_kind kind, std::int64_t when, callback f, const site& from, timer_record*& record) {
  const char* const call = kind == clock_kind::wall ? "wall::after_func_at" : "boot::after_func_at";
  if (!f) throw_empty_function((std::string("vigil::") + call).c_str());
  const std::shared_ptr<clock_hub>& hub = hub_here(call);
  timer_record* made = nullptr;
  clock_callback& c = clock_callback::make(hub, kind, std::move(f), from, made);
  try {
    c.reset(when);
  } catch (...) {
    release(made);
    throw;
  }
  record = made;
  c.retain();
  return &c;
}

bool stop_clock_timer(clock_callback& c) noexcept {
  return c.stop();
}

void retain(clock_callback* c) noexcept {
  c->retain();
}

void release(clock_callback* c) noexcept {
  c->release();
}

clock_callback* running_clock_timer(timer_record*& record) noexcept {
  record = running_timer();
  record->on_clock->retain();
  return record->on_clock;
}

bool reset_clock_timer(clock_callback& c, std::int64_t when) {
  return c.reset(when);
}

std::int64_t deadline_on_clock(const clock_callback& c) noexcept {
  return c.deadline();
}

void throw_empty_clock_timer() {
  throw std::logic_error(
      "vigil: reset of an empty timer; make one with wall::timer, boot::timer, after_func_at or "
      "ticker::aligned");
}

}  // namespace detail

// --- virtual time

namespace testing::detail_virtual {

void move_clocks(const char* call, std::int64_t wall, std::int64_t boot) {
  detail::scheduler& sched = *detail::require_fiber(call).sched;
  if (!sched.clock.is_virtual()) {
    throw wrong_place(
        (std::string("vigil::") + call + ": only inside testing::run_virtual").c_str());
  }
  if (boot < 0) {
    throw std::invalid_argument(std::string("vigil::") + call + ": the time must not be negative");
  }
  detail::clock_hub& hub = *detail::clock_hub::of(sched);
  hub.shift(detail::clock_kind::wall, wall);
  hub.shift(detail::clock_kind::boot, boot);
  if (!hub.tell_all()) throw std::bad_alloc();
}

}  // namespace testing::detail_virtual

}  // namespace VIGIL_PUBLIC
