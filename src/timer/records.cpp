#include "timer/records.hpp"

#include "base/assert.hpp"
#include "base/record_pool.hpp"
#include "sched/worker.hpp"

#include <new>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// Waits and sends take one cache line, callbacks what they need.
constinit record_pool wait_pool(64);
// Whole cache lines: arming and stopping touch one.
constinit record_pool callback_pool((sizeof(timer_record) + 63) / 64 * 64);

void* take(record_pool::cache worker::*cache, record_pool& pool) {
  worker* const w = current_worker();
  return w != nullptr ? (w->*cache).take(pool) : pool.take();
}

void give(record_pool::cache worker::*cache, record_pool& pool, void* record) noexcept {
  if (worker* const w = current_worker()) {
    (w->*cache).give(pool, record);
  } else {
    pool.give(record);
  }
}

}  // namespace

runtime_timer* make_wait_record(timer_service& s, std::uint32_t run, waiter& w) {
  void* const room = take(&worker::wait_records, wait_pool);
  auto* const t = ::new (room) runtime_timer(timer_kind::fiber_ready, s, run);
  t->wait.waiter = &w;
  return t;
}

runtime_timer* make_send_record(timer_service& s,
                                std::uint32_t run,
                                runtime_timer::send_function f,
                                void* argument) {
  void* const room = take(&worker::wait_records, wait_pool);
  auto* const t = ::new (room) runtime_timer(timer_kind::send_time, s, run);
  t->send.function = f;
  t->send.argument = argument;
  return t;
}

timer_record* make_callback_record(timer_service& s,
                                   std::uint32_t run,
                                   callback&& f,
                                   nanos period,
                                   bool from_end,
                                   const site& from) {
  void* const room = take(&worker::callback_records, callback_pool);
  return ::new (room) timer_record(s, run, std::move(f), period, from_end, from);
}

void give_back_record(runtime_timer& t) noexcept {
  if (t.kind == timer_kind::go_func) {
    auto& record = static_cast<timer_record&>(t);
    record.~timer_record();
    give(&worker::callback_records, callback_pool, &record);
  } else {
    t.~runtime_timer();
    give(&worker::wait_records, wait_pool, &t);
  }
}

void give_back_records(worker& w) noexcept {
  w.wait_records.flush(wait_pool);
  w.callback_records.flush(callback_pool);
}

void timer_record::release() noexcept {
  std::uint64_t seen = uses.load();
  for (;;) {
    const bool last = (seen & counts) == handle;
    if (last && when.load() <= 0) {
      if (uses.compare_exchange_weak(seen, callback_destroyed)) {
        destroy_callback();
        return;
      }
    } else if (uses.compare_exchange_weak(seen, seen - handle)) {
      return;  // TR4: the run or handle that was left may have freed the record by now
    }
  }
}

void timer_record::too_many(const char* name) const noexcept {
  fatal("the timer made at %s:%u has too many %s: more than 8 388 607 runs, or 33 554 431 handles",
        made_at.file,
        made_at.line,
        name);
}

void timer_record::destroy_callback() noexcept {
  call.reset();  // the captures: user code, on the caller's thread
  release_record(*this);
}

}  // namespace vigil::inline VIGIL_ABI::detail
