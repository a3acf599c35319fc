#include "timer/timer_service.hpp"

#include "sched/park.hpp"
#include "sched/process.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <mutex>
#include <new>
#include <string>

namespace vigil::internal {
namespace {

// Services that no runtime uses now. Never freed: handles may still look at
// one.
struct spare_services {
  std::mutex lock;
  std::vector<timer_service*> all;
};

// Made at the first use, never destroyed: a runtime may be a global variable.
spare_services& spares() {
  static auto& made = *new spare_services;
  return made;
}

}  // namespace

timer_service& timer_service::begin(scheduler& owner) {
  timer_service* s = nullptr;
  {
    spare_services& spare = spares();
    const std::lock_guard guard(spare.lock);
    if (!spare.all.empty()) {
      s = spare.all.back();
      spare.all.pop_back();
    } else {
      spare.all.reserve(spare.all.capacity() + 1);  // so that end() cannot fail
    }
  }
  if (s == nullptr) s = new timer_service;
  try {
    s->parts_.emplace(owner, s->owner_, s->keepalive_, s->stop_waiters_);
  } catch (...) {
    spare_services& spare = spares();
    const std::lock_guard guard(spare.lock);
    spare.all.push_back(s);
    throw;
  }
  s->keepalive_.begin(owner.waits_for_all());
  s->owner_.begin(owner);
  owner.attach(*s);
  return *s;
}

void timer_service::end() noexcept {
  owner_.end();
  discard_callbacks();
  for (auto& w : sched()->workers())
    give_back_records(*w);
  parts_.reset();
  owner_.forget_sched();
  spare_services& spare = spares();
  const std::lock_guard guard(spare.lock);
  spare.all.push_back(this);
}

timer_service& current_service(const char* call, const char* advice) {
  if (scheduler* const s = current_scheduler()) return service_of(*s);
  process_check_fork(call);
  throw wrong_place((std::string("vigil::") + call + ": " + advice).c_str());
}

// --- arming

bool timer_service::arm_here(intake& in, runtime_timer& t, nanos deadline, bool parking) {
  const bool was_pending = parts_->heap.arm(in, t, deadline, parking);
  in.count(was_pending ? timer_event::reset : timer_event::armed).add();
  return was_pending;
}

// A thread without an intake of its own. Caller: holds owner_.outside, which keeps the
// runtime from ending in the middle.
bool timer_service::arm_shared(runtime_timer& t, nanos deadline) {
  const bool was_pending = parts_->heap.arm(parts_->heap.shared_intake(), t, deadline, false);
  owner_.count(was_pending ? timer_event::reset : timer_event::armed);
  return was_pending;
}

bool timer_service::arm_at(runtime_timer& t, nanos deadline, bool parking) {
  intake* const in = owner_.own_intake();
  if (in != nullptr && is_of_this_run(t)) return arm_here(*in, t, deadline, parking);
  const lock_guard guard(owner_.outside);
  if (!is_of_this_run(t)) throw runtime_gone("vigil::timer::reset: the timer's runtime has ended");
  return arm_shared(t, deadline);
}

bool timer_service::stop(runtime_timer& t) noexcept {
  // The claim. What was written before this arming is taken over by whoever
  // arms next.
  if (t.when.exchange(runtime_timer::idle) <= 0) return false;
  if (is_of_this_run(t)) owner_.count(timer_event::stopped);
  return true;
}

bool timer_service::stop_counted(timer_record& t) noexcept {
  const keepalive::change change(keepalive_, t);
  return stop(static_cast<runtime_timer&>(t));
}

// --- the deadlines of waits

void timer_service::arm(waiter& w, ticket t, nanos deadline) {
  worker& here = *current_worker();
  runtime_timer* record = w.timer;
  if (record == nullptr) w.timer = record = make_wait_record(*this, generation(), w);
  record->wait.which = t;
  arm_here(*here.intake, *record, deadline, true);
}

void timer_service::disarm(waiter& w) noexcept {
  runtime_timer& record = *w.timer;
  nanos seen = record.when.load();
  while (seen > 0) {
    if (record.when.compare_exchange_weak(seen, runtime_timer::idle)) {
      owner_.count(timer_event::stopped);
      return;
    }
  }
  // The timer fiber is touching the waiter: a few instructions, unless its
  // thread has just lost the processor.
  int spins = 0;
  // Pairs with the end of fire_wait().
  while (record.when.load(acquire) == runtime_timer::firing) {
    if (++spins < 64) {
      cpu_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void timer_service::forget(waiter& w) noexcept {
  if (w.timer == nullptr) return;
  drop_reference(*std::exchange(w.timer, nullptr));
}

std::size_t timer_service::list_holders(timer_holder* out, std::size_t room) noexcept {
  std::size_t n = 0;
  const auto look = [&](timer_record& t) {
    const nanos deadline = t.when.load();
    if (deadline <= 0 || !t.referenced.load()) return;
    if (n < room) out[n] = {t.made_at, deadline, t.is_periodic};
    ++n;
  };
  parts_->heap.look_through([&](const heap_entry& e) {
    if (e.timer->kind != timer_kind::go_func || e.timer->filed.load() != e.key) return;
    look(static_cast<timer_record&>(*e.timer));
  });
  parts_->callbacks.look_through([&](timer_record& t) {
    // One that was reset to now may have an entry in the heap, and be listed.
    const nanos key = t.filed.load();
    if (key == runtime_timer::nothing || key == runtime_timer::held) look(t);
  });
  return n;
}

void timer_service::add_stats(runtime_stats& s) const noexcept {
  parts_->heap.add_stats(s);
  parts_->firing.add_stats(s);
}

}  // namespace vigil::internal
