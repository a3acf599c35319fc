#include "core/timer/records.hpp"

#include "core/base/assert.hpp"
#include "core/base/record_pool.hpp"
#include "core/sched/worker/worker.hpp"
#include "core/timer/timer_service.hpp"

#include <new>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

// For waits and sends.
constinit record_pool wait_pool(64);

// The calling worker, if it is one of the runtime that the service has now.
worker* worker_of(timer_service& s) noexcept {
  worker* const w = current_worker();
  return w != nullptr && &w->sched == s.sched() ? w : nullptr;
}

}  // namespace

runtime_timer* make_plain_record(timer_kind kind, timer_service& s, std::uint32_t run) {
  worker* const w = current_worker();
  void* const room = w != nullptr ? w->wait_records.take(wait_pool) : wait_pool.take();
  return ::new (room) runtime_timer(kind, s, run);
}

timer_record* make_callback_record(timer_service& s,
                                   std::uint32_t run,
                                   callback&& f,
                                   nanos period,
                                   bool from_end,
                                   const site& from) {
  worker* const w = worker_of(s);
  record_pool& pool = s.callback_records;
  void* const room = w != nullptr ? w->callback_records.take(pool) : pool.take();
  return ::new (room) timer_record(s, run, std::move(f), period, from_end, from);
}

void give_back_record(runtime_timer& t) noexcept {
  if (t.kind == timer_kind::go_func) {
    // destroy_callback() has left nothing to destroy.
    void* const record = static_cast<timer_record*>(&t);
    record_pool& pool = t.service->callback_records;
    if (worker* const w = worker_of(*t.service)) {
      w->callback_records.give(pool, record);
    } else {
      pool.give(record);
    }
    return;
  }
  t.~runtime_timer();
  if (worker* const w = current_worker()) {
    w->wait_records.give(wait_pool, &t);
  } else {
    wait_pool.give(&t);
  }
}

void give_back_records(worker& w, timer_service& s) noexcept {
  w.wait_records.flush(wait_pool);
  w.callback_records.flush(s.callback_records);
}

// Looks at all places of the pool: a record whose callback is there has counts. No record
// is made meanwhile.
void end_callbacks(timer_service& s) noexcept {
  if (s.callback_records.out() == 0) return;
  s.callback_records.look_through([](void* memory) {
    auto& t = *static_cast<timer_record*>(memory);
    if (!t.retain_if_counted()) return;
    t.end_callback();
    t.release();
  });
}

bool timer_record::retain_if_counted() noexcept {
  std::uint64_t seen = uses.load();
  while ((seen & counts) != 0 && (seen & callback_destroyed) == 0) {
    if (uses.compare_exchange_weak(seen, seen + handle)) return true;
  }
  return false;
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

}  // namespace VIGIL_DETAIL
