#include "core/sched/worker/scheduler.hpp"

#include "core/base/clock_source.hpp"
#include "core/machine/process_state.hpp"
#include "core/sched/fiber/stack_sampler.hpp"
#include "core/sched/worker/fiber_entry.hpp"
#include "core/sched/worker/running_runtimes.hpp"

#include <vigil/error.hpp>
#include <vigil/testing.hpp>
#include <vigil/trace.hpp>

#include <algorithm>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>

namespace VIGIL_DETAIL {
namespace {

atomic<std::uint64_t> runtimes_made{0};

bool is_main_fiber(const fiber* f, const scheduler& of) noexcept {
  return f != nullptr && f->role == fiber_role::main && f->sched == &of;
}

std::byte* align_down(std::byte* p, std::size_t align) noexcept {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(p) & ~(align - 1));
}

// Caller: nothing lies on the stack of f yet.
[[gnu::noinline]] void begin_measuring(fiber& f) noexcept {
  stack_sampler* const s = installed_sampler.load();
  f.own_stack.is_measured = s != nullptr && fiber_registry::counts(f.role) && s->begin(f);
}

}  // namespace

constinit atomic<stack_sampler*> installed_sampler{nullptr};

scheduler::scheduler(const scheduler_options& settings, std::unique_ptr<watch> w, run_seam& run)
    : settings_(settings),
      number_(settings.is_observer ? 0 : runtimes_made.fetch_add(1) + 1),
      run_(run),
      watches_(std::move(w)),
      idle_(watches_.present()),
      dice_(settings.seed),
      at_instant(settings.seed) {
  if (!settings_.is_observer) runtime_was_made.store(true);
  if (settings_.virtual_time) clock.make_virtual(testing::epoch.time_since_epoch().count());
  events_outside = std::make_unique<shared_event_log>(settings_.recorder_events.value_or(0), clock);
  workers_.reserve(settings_.workers);
  for (std::size_t i = 0; i < settings_.workers; ++i) {
    workers_.push_back(std::make_unique<worker>(*this, static_cast<unsigned>(i)));
  }
  if (events_outside->log().is_on()) {
    runtimes_recording.fetch_add(1, order::relaxed);  // ordering: regions see it in a moment
  }
}

void scheduler::let_go() noexcept {
  visitors_.wait_until_gone();
  // Fibers that were started before a run that never came.
  while (fiber* const f = injected.pop()) {
    if (f->table != nullptr) f->table->destroy_call(f->body);
    retire(*f);
  }
}

scheduler::~scheduler() {
  if (events_outside->log().is_on()) {
    runtimes_recording.fetch_sub(1, order::relaxed);  // ordering: as above
  }
}

bool scheduler::adopt_watch(std::unique_ptr<watch> w) {
  if (watches_.present().take_in(w)) return true;
  watch& given = *w;
  if (!watches_.change(std::move(w))) return false;
  idle_.change_watch(given);
  // ordering: a hint.
  if (given.knows_io() && !clock.is_virtual()) next_poll.store(0, order::relaxed);
  return true;
}

// --- making fibers

// The calling worker, if it is one of this runtime's.
worker* scheduler::own_worker() noexcept {
  worker* const w = current_worker();
  return w != nullptr && &w->sched == this ? w : nullptr;
}

// Caller: has counted the fiber as alive; if this throws, the count is taken back. The
// result is built in the caller's place: a copy would load as one wide word fields that
// were just stored one by one, and stall until they have left the store buffer.
stack scheduler::take_stack(std::size_t size, fiber_role role, worker* here) {
  bool has_room = false;
  try {
    // Counted first, looked second; the main fiber closes first and looks at
    // the count second. One of the two sees the other.
    if (fiber_registry::counts(role) && state.phase() >= run_phase::closed &&
        !is_main_fiber(current_fiber(), *this)) {
      throw runtime_gone(
          "vigil: the run is ending, no fiber can be started any more; start it "
          "before, or in the next run");
    }
    fibers.take_room(role, size);
    has_room = true;
    return here != nullptr ? here->stacks.take(size) : allocate_stack(size);
  } catch (...) {
    if (has_room) fibers.give_room(role, size);
    if (fiber_registry::counts(role)) fibers.count_alive(-1);
    throw;
  }
}

fiber& scheduler::make_fiber(std::size_t stack_size,
                             std::string_view name,
                             std::size_t body_size,
                             std::size_t body_align,
                             const site& from,
                             fiber_role role) {
  worker* const here = own_worker();
  if (stack_size == 0) stack_size = settings_.stack_size;
  if (body_size > stack_size / 2) {
    throw std::invalid_argument(
        "vigil: the function with its captures and arguments takes " + std::to_string(body_size) +
        " bytes, more than half of the fiber's stack of " + std::to_string(stack_size) +
        "; pass a pointer, or give fiber_options::stack_size");
  }
  if (fiber_registry::counts(role)) fibers.count_alive(1);
  const stack where = take_stack(stack_size, role, here);
  fiber* const f = control_block(where);
  ::new (static_cast<void*>(f)) fiber(*this, where, name, from);
  f->role = role;
  f->own_stack.charge = stack_size;
  f->ending.on_unhandled = settings_.on_unhandled.box();
  f->identity.id = fibers.take_id(here != nullptr ? &here->fiber_numbers : nullptr);
  const std::uint32_t number = mixed(f->identity.id);
  // ordering: before anything is written to its stack, as in worker::about_to_run().
  f->runs.store(number, order::release);
  if (here != nullptr && here->current != nullptr) f->identity.parent = here->current->identity.id;
  std::byte* const top = reinterpret_cast<std::byte*>(f);
  std::byte* const room = align_down(top - body_size, body_align < 16 ? 16 : body_align);
  f->body = room;
  if (is_drawn(number)) [[unlikely]]
    begin_measuring(*f);
  f->side.prepare(where, align_down(room, 16), &fiber_entry, f);
  return *f;
}

// `here`: the calling worker, or nullptr.
inline void scheduler::enroll(fiber& f, worker* here) noexcept {
  // ordering: the registry's lock and the queue publish it.
  f.state.store(fiber_state::runnable, order::relaxed);
  if (here == nullptr) {
    events_outside->start(f.identity, static_cast<std::uint8_t>(f.role));
  } else if (here->counters.log.is_on()) {
    here->counters.log.start(f.identity, static_cast<std::uint8_t>(f.role));
  }
  fibers.add(f);
}

void scheduler::adopt(fiber& f) noexcept {
  enroll(f, own_worker());
}

void scheduler::start(fiber& f) noexcept {
  worker* const w = own_worker();
  enroll(f, w);
  if (w == nullptr) {
    make_runnable(f);
    return;
  }
  w->counters.fibers_started.add();
  w->counters.queued.begin_started(f);
  if (!w->push(f, run_order::in_order) || idle_.asleep() == 0) return;
  if (w->current != nullptr && w->current->starts_for_events) {
    w->share();
    w->share_when_due();  // it may start many
  } else if (w->has_one()) {
    w->share();
  } else {
    work_added();
  }
}

void scheduler::abandon(fiber& f) noexcept {
  fibers.give_room(f.role, f.own_stack.charge);
  if (fiber_registry::counts(f.role)) fibers.count_alive(-1);
  dispose(f);
}

void scheduler::retire(fiber& f) noexcept {
  fibers.remove(f);
  abandon(f);
}

// --- queues

void scheduler::make_runnable(fiber& f, run_order when) noexcept {
  f.state.store(fiber_state::runnable, order::relaxed);  // ordering: the dump's field
  if (worker* const w = own_worker()) {
    w->counters.queued.begin(f);
    if (w->push(f, when)) work_added_here(*w);
    return;
  }
  const visit inside(visitors_);
  events_outside->write(event_kind::ready, f.identity.id);
  if (f.pinned != nullptr) {
    f.pinned->push_pinned(f);
  } else {
    inject(f);
  }
}

void scheduler::ready_all(fiber_chain& chain) noexcept {
  worker& w = *current_worker();
  run_order when = run_order::next;
  while (fiber* const f = chain.pop_front()) {
    // Pairs with PK1 in worker::after(): one of the two queues the fiber.
    if (f->park_state.exchange(park_word::notified, order::acq_rel) != park_word::parked) continue;
    f->state.store(fiber_state::runnable, order::relaxed);  // ordering: the dump's field
    w.counters.queued.begin(*f);
    if (w.push(*f, when)) when = run_order::in_order;
  }
  work_added_here(w);
}

void scheduler::inject(fiber& f) noexcept {
  injected.push(f);
  work_added();
}

void scheduler::work_added() noexcept {
  idle_.wake_one();
}

void scheduler::work_added_here(worker& w) noexcept {
  if (idle_.asleep() != 0) w.share();
}

// --- the life of a fiber

void scheduler::finish(fiber& f) noexcept {
  timers_->forget(f.own_waiter);
  fibers.remove(f);
  fibers.give_room(f.role, f.own_stack.charge);
  waiter* joiner = nullptr;
  {
    const lock_guard guard(f.joining.lock);
    // Pairs with the acquire in has_ended() of the join functions.
    f.life.has_ended.store(true, order::release);
    // Claimed under the lock: a joiner whose wait ended otherwise takes itself
    // out under it, so it is alive here.
    open_wait* const w = std::exchange(f.joining.joiner, nullptr);
    if (w != nullptr && w->claim(outcome::value)) joiner = w->whose;
  }
  if (joiner != nullptr) joiner->deliver(run_order::in_order);
}

void scheduler::ended(fiber& f) noexcept {
  const fiber_role role = f.role;
  f.state.store(fiber_state::ended, order::relaxed);  // ordering: the dump's field
  if (f.release()) dispose(f);
  if (role == fiber_role::main) {
    fibers.count_alive(-1);
    state.advance(run_phase::over);
    idle_.wake_all();
  } else if (role == fiber_role::user) {
    fibers.count_alive(-1);
  } else {
    fibers.count_system(-1);
  }
}

void scheduler::add_stats(runtime_stats& s) const noexcept {
  s.fibers_alive = fibers.alive();
  s.workers = workers_.size();
  s.workers_asleep = idle_count();
  s.io_pending = outside.pending_io();
  s.wake_calls += idle_.wake_calls();
  s.overseer_waits += overseer_waits.get();
  s.overseer_looks += overseer_looks.get();
  std::uint64_t begun = 0;
  std::uint64_t over = 0;
  const nanos now = monotonic_now();
  for (const auto& w : workers_) {
    const worker_counters& c = w->counters;
    s.fibers_started += c.fibers_started.get();
    s.switches += c.switches.get();
    s.steals += c.steals.get();
    c.queued.add_stats(s.run_queue_delay);
    s.oldest_ready = std::max(s.oldest_ready, std::chrono::nanoseconds(c.queued.followed_for(now)));
    over += c.sleeps_ended.get();
    begun += c.sleeps_begun.get();
    s.kernel_waits += c.kernel_waits.get();
    s.wakes_useful += c.wakes_useful.get();
    s.wakes_needless += c.wakes_needless.get();
  }
  s.fibers_sleeping = begun > over ? begun - over : 0;
  if (timers_ != nullptr) timers_->add_stats(s);
}

void refuse_without_runtime(const std::string& call, const char* advice) {
  process_check_fork(call.c_str());
  throw wrong_place((call + ": this thread has no runtime; " + advice).c_str());
}

fiber& require_fiber(const char* call) {
  if (fiber* const f = current_fiber()) return *f;
  process_check_fork(call);
  throw wrong_place(
      (std::string("vigil: ") + call + " needs a fiber: call it inside vigil::run, go or spawn")
          .c_str());
}

}  // namespace VIGIL_DETAIL
