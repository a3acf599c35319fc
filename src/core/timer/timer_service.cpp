#include "core/timer/timer_service.hpp"

#include <vigil/error.hpp>

#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace VIGIL_DETAIL {
namespace {

// Services that no runtime uses at present. They are never freed: a handle may still look
// at one.
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

// --- life cycle: begin(); for each run open(), discard_callbacks(), end_fibers(); end()

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
  s->keepalive_.begin(run_of(owner).end.waits_for_all());
  s->owner_.begin(owner, owner.events_outside.get());
  owner.attach(*s);
  return *s;
}

void timer_service::open() {
  parts_->firing.open();
  try {
    parts_->runners.open();
  } catch (...) {
    parts_->firing.abort_open();
    throw;
  }
  owner_.run_begins();
}

// Marks the run as over before it tells the listeners: code that checks is_in_run() under
// a lock that a listener's run_ends() takes is either seen there or finds the run over.
void timer_service::run_ends() noexcept {
  owner_.run_ends();
  listeners_.tell_all();
}

void timer_service::abort_open() noexcept {
  run_ends();
  parts_->runners.abort_open();
  parts_->firing.abort_open();
}

bool timer_service::discard(timer_record& t) noexcept {
  if (t.begin_run() == timer_record::begun::no) return false;
  const bool prevented = stop(t);
  stop_waiters_.end_run(t);
  return prevented;
}

void timer_service::discard_callbacks() noexcept {
  while (timer_record* const t = parts_->callbacks.pop_to_discard()) {
    if (t->filed.load() == runtime_timer::held) {
      t->filed.store(runtime_timer::nothing);
      parts_->heap.give_up_slot();
    }
    discard(*t);
    release_record(*t);
  }
  for (;;) {
    heap_entry gone[64];
    const std::size_t n = parts_->heap.take_any(gone, std::size(gone));
    if (n == 0) return;
    for (std::size_t i = 0; i < n; ++i) {
      runtime_timer& t = *gone[i].timer;
      nanos key = gone[i].key;
      t.filed.compare_exchange_strong(key, runtime_timer::nothing);
      if (t.kind == timer_kind::go_func) {
        discard(static_cast<timer_record&>(t));
      } else if (stop(t) && t.kind == timer_kind::send_time) {
        t.send.function(t.send.argument, never, nullptr);
      }
      release_record(t);
    }
  }
}

void timer_service::end_fibers() noexcept {
  run_ends();
  parts_->runners.end();
  parts_->firing.end();
}

void timer_service::end() noexcept {
  owner_.end();
  discard_callbacks();
  for (auto& w : sched()->workers())
    give_back_records(*w, *this);
  end_callbacks(*this);
  parts_.reset();
  owner_.forget_sched();
  spare_services& spare = spares();
  const std::lock_guard guard(spare.lock);
  spare.all.push_back(this);
}

timer_service& current_service(const char* call, const char* advice) {
  if (scheduler* const s = current_scheduler()) return service_of(*s);
  refuse_without_runtime(std::string("vigil::") + call, advice);
}

// --- the deadlines of waits

void timer_service::arm(waiter& w, ticket t, nanos deadline) {
  worker& here = *current_worker();
  runtime_timer* record = w.timer;
  if (record == nullptr) {
    w.timer = record = make_plain_record(timer_kind::fiber_ready, *this, generation());
    record->wait.whose = &w;
  }
  record->wait.opened = t;
  parts_->heap.arm(*here.own_intake, *record, deadline, true);
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
  // The timer fiber is touching the waiter. That takes a few instructions, unless its
  // thread has just lost the processor.
  int spins = 0;
  // Pairs with the end of fire_wait().
  while (record.when.load(order::acquire) == runtime_timer::firing) {
    if (++spins < 64) {
      cpu_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void timer_service::forget(waiter& w) noexcept {
  if (w.timer == nullptr) return;
  release_record(*std::exchange(w.timer, nullptr));
}

// --- queries about all parts

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
    // A timer that was reset to now may still have an entry in the heap, and be listed.
    const nanos key = t.filed.load();
    if (key == runtime_timer::nothing || key == runtime_timer::held) look(t);
  });
  return n;
}

std::size_t timer_service::list_next(timer_holder* out, std::size_t room) noexcept {
  std::size_t n = 0;
  parts_->heap.look_through([&](const heap_entry& e) {
    const runtime_timer& t = *e.timer;
    if (t.kind == timer_kind::fiber_ready || t.filed.load() != e.key) return;
    const nanos deadline = t.when.load();
    if (deadline <= 0 || (n == room && (n == 0 || deadline >= out[n - 1].deadline))) return;
    const bool has_place = t.kind == timer_kind::go_func;
    const site made_at = has_place ? static_cast<const timer_record&>(t).made_at : site{};
    if (n < room) ++n;
    std::size_t i = n - 1;
    for (; i > 0 && out[i - 1].deadline > deadline; --i)
      out[i] = out[i - 1];
    out[i] = {made_at, deadline, t.is_periodic};
  });
  return n;
}

void timer_service::add_stats(runtime_stats& s) const noexcept {
  parts_->heap.add_stats(s);
  parts_->firing.add_stats(s);
}

}  // namespace VIGIL_DETAIL
