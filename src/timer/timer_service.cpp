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

class no_room_for_timer : public std::bad_alloc {
 public:
  const char* what() const noexcept override {
    return "vigil: no memory for another pending timer; nothing was armed. Stop some, or raise the "
           "limit on memory (ulimit -v, RLIMIT_DATA, cgroup memory.max)";
  }
};

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
    auto heap = std::make_unique<timer_heap>();
    std::vector<std::unique_ptr<intake>> intakes;
    for (std::size_t i = 0; i <= owner.workers().size(); ++i) {
      intakes.push_back(std::make_unique<intake>());
    }
    const lock_guard guard(s->heap_lock_);
    s->heap_ = std::move(heap);
    s->intakes_ = std::move(intakes);
    s->taken_ = 0;
    s->granted_ = 0;
    s->fired_before_ = 0;
    s->sweep_at_ = 0;
  } catch (...) {
    spare_services& spare = spares();
    const std::lock_guard guard(spare.lock);
    spare.all.push_back(s);
    throw;
  }
  s->shared_ = s->intakes_.back().get();
  for (std::size_t i = 0; i < owner.workers().size(); ++i) {
    owner.workers()[i]->intake = s->intakes_[i].get();
  }
  s->ties_ = random(owner.settings().seed ^ 0x7469'6573);
  s->keepalive_.begin(owner.waits_for_all());
  for (auto& bucket : s->late_)
    bucket.clear();
  s->latest_fire_.store(0);
  s->owner_.begin(owner);
  owner.attach(*s);
  return *s;
}

void timer_service::end() noexcept {
  owner_.end();
  discard_callbacks();
  for (auto& w : sched()->workers())
    give_back_records(*w);
  {
    const lock_guard guard(heap_lock_);
    heap_.reset();
  }
  owner_.forget_sched();
  intakes_.clear();
  shared_ = nullptr;
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

heap_entry timer_service::entry_for(runtime_timer& t, nanos key) noexcept {
  // ordering: see key_for(); a slack that changes in between makes the due run
  // look at the timer a little early or late, never fire it early.
  const std::uint32_t slack = t.slack_us.load(relaxed);
  // In virtual time the seed draws the order of equal keys.
  const std::uint32_t tie =
      sched()->is_virtual() ? static_cast<std::uint32_t>(ties_.next()) : std::uint32_t{0};
  return {key, tie, slack, &t};
}

// Puts the deadline in force. True if an entry has to be filed, with `key`.
bool timer_service::take_over(runtime_timer& t, nanos deadline, nanos& key) noexcept {
  key = t.key_for(deadline);
  // T1: when first, then filed; surfacing goes the other way round.
  nanos seen = t.filed.load();
  while (key < seen) {
    if (t.filed.compare_exchange_weak(seen, key)) {
      // ordering: the new reference is made from one that the caller holds.
      t.references.fetch_add(1, relaxed);
      return true;
    }
  }
  return false;
}

void timer_service::lower_next_deadline(nanos key, bool parking) noexcept {
  if (key >= runtime_timer::latest) return;
  nanos seen = sched()->next_deadline.load();
  while (key < seen) {
    if (sched()->next_deadline.compare_exchange_weak(seen, key)) {
      sched()->deadline_lowered(key, parking);
      return;
    }
  }
}

// Returns whether it was pending. Caller: owns the intake.
bool timer_service::arm_in(intake& in, runtime_timer& t, nanos deadline, bool parking) {
  if (in.allowance == 0) make_room(in);
  deadline = runtime_timer::clamp_deadline(deadline);
  const nanos before = t.when.exchange(deadline);
  nanos key = 0;
  if (take_over(t, deadline, key)) {
    {
      const lock_guard guard(in.lock);
      // ordering: the owner is the only one that adds; drains hold the lock.
      const std::uint32_t n = in.size.load(relaxed);
      in.entries[n] = entry_for(t, key);
      in.size.store(n + 1);  // S1
    }
    --in.allowance;
    lower_next_deadline(key, parking);
  }
  return before > 0;
}

bool timer_service::arm_here(intake& in, runtime_timer& t, nanos deadline, bool parking) {
  const bool was_pending = arm_in(in, t, deadline, parking);
  in.count(was_pending ? timer_event::reset : timer_event::armed).add();
  return was_pending;
}

// A thread without an intake of its own. Caller: holds owner_.outside, which keeps the
// runtime from ending in the middle.
bool timer_service::arm_shared(runtime_timer& t, nanos deadline) {
  const bool was_pending = arm_in(*shared_, t, deadline, false);
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

// S3: sets heap slots aside for a whole intake, after merging what is in it.
void timer_service::make_room(intake& in) {
  const lock_guard guard(heap_lock_);
  if (in.size.load() != 0) merge(in);
  // More than half are dead then, so looking at twice as many entries as can
  // have come in since the last time keeps their number where it is.
  if (has_too_many_dead(pending())) sweep(2 * intake::capacity);
  const auto reserve = [this]() VIGIL_REQUIRES(heap_lock_) {
    return heap_->reserve(heap_->size() + taken_ + granted_ + intake::capacity);
  };
  if (!reserve()) {
    // The room of dead entries is the last there is, however long that takes.
    sweep(2 * heap_->size());
    if (!reserve()) throw no_room_for_timer();
  }
  heap_size_.store(heap_->size(), relaxed);  // ordering: a statistic
  granted_ += intake::capacity;
  in.allowance = intake::capacity;
}

std::uint64_t timer_service::pending() const noexcept {
  // Exact when nobody arms.
  std::uint64_t n = owner_.counted_outside(timer_event::armed) -
                    owner_.counted_outside(timer_event::stopped) -
                    owner_.counted_outside(timer_event::fired);
  for (const auto& in : intakes_)
    n += in->pending();
  // A timer armed on one worker and stopped on another may be counted as
  // stopped first.
  return n > UINT64_MAX / 2 ? 0 : n;
}

bool timer_service::anything_pending() noexcept {
  return pending() != 0;
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

void timer_service::add_stats(runtime_stats& s) const noexcept {
  const auto total = [this](timer_event what) {
    std::uint64_t n = owner_.counted_outside(what);
    for (const auto& in : intakes_)
      n += in->counted(what);
    return n;
  };
  s.timers_armed += total(timer_event::armed);
  s.timers_reset += total(timer_event::reset);
  s.timers_stopped += total(timer_event::stopped);
  s.timers_fired += total(timer_event::fired);
  for (const auto& in : intakes_)
    s.heap_entries += in->size.load(relaxed);  // ordering: a statistic
  s.timers_pending = pending();
  s.heap_entries += heap_size_.load(relaxed);  // ordering: a statistic
  s.dead_entries = s.heap_entries > s.timers_pending ? s.heap_entries - s.timers_pending : 0;
  for (std::size_t i = 0; i < late_.size(); ++i)
    s.lateness.count[i] += late_[i].get();
  s.lateness.max_nanos =
      std::max(s.lateness.max_nanos, latest_fire_.load(relaxed));  // ordering: as above
}

}  // namespace vigil::internal
