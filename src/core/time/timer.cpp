#include "core/sched/worker/turn_budget.hpp"
#include "core/time/timer_channel.hpp"
#include "core/timer/timer_service.hpp"

#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/ticker.hpp>
#include <vigil/timer.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace VIGIL_DETAIL {

namespace {

timer_service& service_here(const char* call) {
  return current_service(
      call,
      "call it on a fiber. From a plain thread use "
      "runtime::after_func, or bound a wait on a channel with recv_for or on_timeout");
}

timer_record* make_in(timer_service& service,
                      nanos delay,
                      nanos period,
                      bool from_end,
                      callback&& f,
                      const site& from) {
  timer_record* const record = service.make_record(std::move(f), period, from_end, from);
  try {
    service.reset_after(*record, delay);
  } catch (...) {
    release(record);
    throw;
  }
  return record;
}

timer_record* make(
    const char* call, nanos delay, nanos period, bool from_end, callback&& f, const site& from) {
  if (!f) throw_empty_function((std::string("vigil::") + call).c_str());
  return make_in(service_here(call), delay, period, from_end, std::move(f), from);
}

bool was_pending(timer_service::armed how) noexcept {
  return how == timer_service::armed::was_pending;
}

void check_handle(const timer_record* record) {
  if (record == nullptr) {
    throw std::logic_error(
        "vigil::timer::reset: the handle is empty; make a timer with timer(duration), ticker, "
        "after_func or every");
  }
}

}  // namespace

timer_record* after_func(std::int64_t delay, callback f, const site& from) {
  return make("after_func", delay, 0, false, std::move(f), from);
}

timer_record* after_func_in(scheduler& sched, std::int64_t delay, callback f, const site& from) {
  if (!f) throw_empty_function("vigil::runtime::after_func");
  timer_service& service = service_of(sched);
  return make_in(service, delay, 0, false, std::move(f), from);
}

timer_record* every(std::int64_t period, bool from_end, callback f, const site& from) {
  if (period <= 0) {
    throw std::invalid_argument("vigil::every: the period must be longer than zero");
  }
  return make("every", period, period, from_end, std::move(f), from);
}

void retain(timer_record* record) noexcept {
  record->retain();
}

void release(timer_record* record) noexcept {
  record->release();
}

bool stop(timer_record* record) noexcept {
  return record->service->stop(*record);
}

bool stop_and_wait(timer_record* record, const wait_limit& limit) {
  return in_turn(
      limit, [record](const wait_limit& l) { return record->service->stop_and_wait(*record, l); });
}

namespace {

// Not inlined: the reset of other timers is hot.
[[gnu::noinline]] bool reset_periodic(timer_record& t, nanos period) {
  if (period <= 0) {
    throw std::invalid_argument(
        "vigil::timer::reset: the period of every() must be longer than "
        "zero; to end it, call stop()");
  }
  const nanos before = t.period.exchange(period);
  timer_service::armed found = timer_service::armed::held_back;
  try {
    found = t.service->reset_after(t, period);
  } catch (...) {
    t.period.store(before);
    throw;
  }
  if (found == timer_service::armed::held_back) t.period.compare_exchange_strong(period, before);
  return was_pending(found);
}

}  // namespace

bool reset(timer_record* record, std::int64_t delay) {
  check_handle(record);
  if (record->is_periodic) return reset_periodic(*record, delay);
  return was_pending(record->service->reset_after(*record, delay));
}

bool reset_at(timer_record* record, std::int64_t deadline) {
  check_handle(record);
  if (record->is_periodic) {
    throw std::logic_error(
        "vigil::timer::reset: a periodic timer takes a duration, its new "
        "period, not a time point");
  }
  return was_pending(record->service->reset_at(*record, deadline));
}

std::int64_t deadline_of(const timer_record* record) noexcept {
  const nanos deadline = record->when.load();
  return deadline <= 0 || deadline >= runtime_timer::latest ? never : deadline;
}

std::int64_t remaining(const timer_record* record) noexcept {
  const nanos deadline = deadline_of(record);
  if (deadline == never) return never;
  return std::max<nanos>(0, deadline - record->service->now_in(record->generation));
}

void set_referenced(timer_record* record, bool on) noexcept {
  record->service->set_referenced(*record, on);
}

bool is_referenced(const timer_record* record) noexcept {
  return record->referenced.load();
}

timer_record* running_timer() noexcept {
  // ordering: the fiber's own word.
  const void* const running = current_fiber()->callback.timer.load(order::relaxed);
  auto* const record = const_cast<timer_record*>(static_cast<const timer_record*>(running));
  record->retain();
  return record;
}

void set_slack(timer_record* record, std::int64_t slack) {
  const nanos micros = std::clamp<nanos>(slack / 1000, 0, UINT32_MAX);
  record->set_slack(static_cast<std::uint32_t>(micros));
}

void stop_for_scope(const timer_record* record, call_ref stop, call_ref stop_and_wait) noexcept {
  const fiber* const self = current_fiber();
  // ordering: the fiber's own word.
  if (self != nullptr && record != nullptr && self->callback.timer.load(order::relaxed) == record) {
    stop();
    return;
  }
  if (self == nullptr) {
    stop_and_wait();
  } else {
    // Destructors give no worker away: the call does not count.
    if (record != nullptr) static_cast<void>(spend_calls(-1));
    const this_fiber::shield until_it_has_ended;
    stop_and_wait();
  }
}

// --- timers with a channel

namespace {

// Returns the deadline, which is also the value received; zero or less means now.
nanos in(nanos now, nanos delay) noexcept {
  return saturating_add(now, std::max<nanos>(0, delay));
}

timer_channel& timer_of(channel_core* c) {
  if (c == nullptr) check_handle(nullptr);
  return *static_cast<timer_channel*>(c);
}

const timer_channel& timer_of(const channel_core* c) noexcept {
  return *static_cast<const timer_channel*>(c);
}

void check_period(const char* call, nanos period) {
  if (period > 0) return;
  throw std::invalid_argument(std::string("vigil::") + call +
                              ": the period must be longer than zero; to end it, call stop()");
}

}  // namespace

channel_core* make_timer(const char* call, std::int64_t delay) {
  timer_service& service = service_here(call);
  return new timer_channel(service, in(service.sched()->clock.now(), delay), 0);
}

channel_core* make_timer_at(const char* call, std::int64_t deadline) {
  return new timer_channel(service_here(call), deadline, 0);
}

channel_core* make_ticker(const char* call, std::int64_t first, std::int64_t period) {
  check_period(call, period);
  timer_service& service = service_here(call);
  return new timer_channel(service, in(service.sched()->clock.now(), first), period);
}

bool stop(channel_core* timer) noexcept {
  return static_cast<timer_channel*>(timer)->stop();
}

bool reset(channel_core* timer, std::int64_t delay) {
  timer_channel& t = timer_of(timer);
  return t.reset(in(t.now(), delay), 0);
}

bool reset_at(channel_core* timer, std::int64_t deadline) {
  return timer_of(timer).reset(deadline, 0);
}

bool reset_ticker(channel_core* ticker, std::int64_t first, std::int64_t period) {
  timer_channel& t = timer_of(ticker);
  check_period("ticker::reset", period);
  return t.reset(in(t.now(), first), period);
}

std::int64_t deadline_of(const channel_core* timer) noexcept {
  return timer_of(timer).deadline();
}

std::int64_t remaining(const channel_core* timer) noexcept {
  const timer_channel& t = timer_of(timer);
  const nanos deadline = t.deadline();
  if (deadline == never) return never;
  const nanos now = t.now();
  return deadline <= now ? 0 : deadline - now;
}

std::uint64_t missed(const channel_core* ticker) noexcept {
  return timer_of(ticker).missed();
}

void set_slack(channel_core* timer, std::int64_t slack) {
  const nanos micros = std::clamp<nanos>(slack / 1000, 0, UINT32_MAX);
  timer_of(timer).set_slack(static_cast<std::uint32_t>(micros));
}

}  // namespace VIGIL_DETAIL
