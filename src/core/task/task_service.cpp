#include "core/task/task_service.hpp"

#include "core/base/assert.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/wait/wake_list.hpp"
#include "core/sched/worker/system_fiber.hpp"
#include "core/sched/worker/turn_budget.hpp"

#include <vigil/detail/callable.hpp>
#include <vigil/error.hpp>
#include <vigil/post.hpp>

#include <memory>
#include <utility>

namespace VIGIL_DETAIL {

task_service& task_service::of(scheduler& s) {
  return s.parts_above.find_or_make<task_service>(
      runtime_part::kind::tasks, [&s] { return std::make_unique<task_service>(s); });
}

fiber& task_service::make_runner() {
  return make_system_fiber<&task_service::body>(sched_, "tasks", fiber_role::runner, *this);
}

task_core* task_service::start(std::coroutine_handle<> outermost,
                               task_frame& f,
                               bool detached,
                               const site& from) {
  auto made = std::make_unique<task_core>(*this, outermost, f, detached, from);
  lock_.lock();
  while (spare_ == 0 && idle_.empty()) {  // TV3
    lock_.unlock();
    fiber& reserve = make_runner();
    lock_.lock();
    idle_.push_back(reserve);
  }
  task_core& t = *made.release();
  t.id = ++last_id_;
  all_.push_back(t);
  lock_.unlock();
  sched_.fibers.count_alive(1);
  f.task = &t;
  // ordering: nobody else has the task yet.
  t.park.store(task_core::park_word::woken, order::relaxed);
  queue(t);
  return &t;
}

void task_service::make_ready(task_core& t) noexcept {
  if (current_scheduler() == &sched_) {
    queue(t);
    return;
  }
  // The task may end the run at once, and the runtime with it.
  const visit inside(sched_.inside());
  queue(t);
}

void task_service::queue(task_core& t) noexcept {
  bool wanted = false;
  {
    const lock_guard guard(lock_);
    put_in_queue(t);
    wanted = wants_spare();
  }
  if (wanted) ready_one();
}

void task_service::put_in_queue(task_core& t) noexcept {
  if (t.stop_flag.load()) {
    ready_.push_front(t);  // the destructor of its handle may wait, and keep a stack
  } else {
    ready_.push_back(t);
  }
}

// Whether the caller has to call ready_one().
bool task_service::wants_spare() const noexcept {
  return spare_ == 0 && !asks_for_stack_ && !ready_.empty();
}

// Readies a runner, unless one is spare by now (TV1).
void task_service::ready_one() noexcept {
  fiber* f = nullptr;
  {
    const lock_guard guard(lock_);
    if (!wants_spare()) return;
    ++spare_;  // TV2
    readied_on_ = current_worker();
    f = idle_.pop_front();
  }
  if (f == nullptr) {
    try {
      f = &make_runner();
    } catch (...) {  // no stack
      ask_for_stack();
      return;
    }
  }
  ready(*f);
}

// Asks the runners of callbacks for one of theirs. Their queue is looked at whenever a
// stack may have come free.
void task_service::ask_for_stack() noexcept {
  {
    const lock_guard guard(lock_);
    --spare_;
    // The stop runs no more callbacks, but brings runners out of their tasks.
    asks_for_stack_ = !sched_.state.stopping();
    if (!asks_for_stack_) return;
    put_stopped_first();
  }
  try {
    post_to(sched_, callback([this] { lend_stack(); }), site{"vigil", 0});
  } catch (...) {  // no memory: the tasks wait for the next runner, or the next task
    const lock_guard guard(lock_);
    asks_for_stack_ = false;
  }
}

// Tasks that were asked to stop may be waited for by those that have the stacks.
void task_service::put_stopped_first() noexcept {
  ready_chain stopped_ones;
  ready_chain others;
  while (task_core* const t = ready_.pop_front())
    (t->stop_flag.load() ? stopped_ones : others).push_back(*t);
  ready_.splice_back(stopped_ones);
  ready_.splice_back(others);
}

// The callback: a runner for one task, since other callbacks may wait for the stack.
void task_service::lend_stack() {
  runner own(*current_fiber());
  lock_.lock();
  asks_for_stack_ = false;
  runners_.push_back(own);
  ++spare_;
  run_turn(own, 1);
  --spare_;
  runners_.remove(own);
  const bool wanted = wants_spare();
  lock_.unlock();
  if (wanted) ready_one();
}

// The next task. On virtual time the seed draws it, unless the first one is to stop: the
// order of those may matter where stacks are lacking.
task_core* task_service::pop() noexcept {
  if (!sched_.clock.is_virtual() || ready_.size() < 2 || ready_.front()->stop_flag.load() ||
      sched_.state.stopping()) {
    return ready_.pop_front();
  }
  constexpr std::size_t most = 16;
  const auto n = static_cast<std::uint32_t>(ready_.size() < most ? ready_.size() : most);
  // The ones before it go behind, in their order: any order is as good.
  for (std::uint32_t i = current_worker()->dice().below(n); i > 0; --i)
    ready_.push_back(*ready_.pop_front());
  return ready_.pop_front();
}

void task_service::body() {
  runner own(*current_fiber());
  lock_.lock();
  runners_.push_back(own);
  give_time();
  for (;;) {
    if (run_turn(own, tasks_per_turn)) {
      lock_.unlock();
      current_worker()->yield();
      lock_.lock();
      continue;
    }
    --spare_;
    if (all_.empty() || idle_.size() >= most_idle) break;
    idle_.push_back(own.self);
    lock_.unlock();
    park(wait_reason::idle_runner);
    lock_.lock();
    give_time();
  }
  runners_.remove(own);
  lock_.unlock();
}

// Called by a runner that another worker may have taken from the one that readied it.
// Two tasks that take turns leave a single one ready, each for a moment: there it is
// resumed sooner, and without fetching what it uses to another processor. So it is left
// to the runner that is at work, unless that takes longer than such a moment.
void task_service::give_time() noexcept {
  constexpr nanos moment = 3'000;
  if (ready_.size() != 1 || inside_ == 0 || readied_on_ == current_worker()) return;
  const nanos until = monotonic_now() + moment;
  while (ready_.size() == 1 && inside_ != 0 && monotonic_now() < until) {
    lock_.unlock();
    cpu_pause(16);
    lock_.lock();
  }
}

// Resumes ready tasks, so many at most. True if there are more.
bool task_service::run_turn(runner& own, unsigned most) {
  for (unsigned i = 0; i < most; ++i) {
    task_core* const t = pop();
    if (t == nullptr) return false;
    --spare_;
    own.inside = t;
    ++inside_;
    // The one who asks sets the flag first, and looks for the runner afterwards.
    own.self.stop_flag.store(t->stop_flag.load());
    const bool wanted = wants_spare();
    lock_.unlock();
    if (wanted) ready_one();
    const bool is_ready = enter(own, *t);
    const bool turn_is_over = current_worker()->budget.take_end_of_turn();
    lock_.lock();
    own.comes_out();
    --inside_;
    ++spare_;
    if (is_ready) put_in_queue(*t);  // not before: this runner is spare now (TV1)
    if (turn_is_over) break;
  }
  return !ready_.empty();
}

// The runner that is inside the task; null if none is.
task_service::runner* task_service::find_inside(const task_core& t) noexcept {
  runner* r = runners_.front();
  while (r != nullptr && r->inside != &t)
    r = list<runner, &runner::hook>::next(*r);
  return r;
}

void task_service::stop_runner_of(const task_core& t) noexcept {
  waiter* stopped_wait = nullptr;
  {
    const lock_guard guard(lock_);
    if (asks_for_stack_) put_stopped_first();
    runner* const r = find_inside(t);
    if (r == nullptr) return;
    r->self.stop_flag.store(true);
    if (r->self.own_waiter.claim_stop()) stopped_wait = &r->self.own_waiter;
  }
  if (stopped_wait != nullptr) stopped_wait->deliver();
}

const task_core* task_service::task_on(const fiber& f) noexcept {
  const lock_guard guard(lock_);
  const runner* r = runners_.front();
  while (r != nullptr && &r->self != &f)
    r = list<runner, &runner::hook>::next(*r);
  return r == nullptr ? nullptr : r->inside;
}

const task_core* task_of_caller() noexcept {
  const fiber* const self = current_fiber();
  if (self == nullptr || self->role != fiber_role::runner) return nullptr;
  runtime_part* const tasks = current_scheduler()->parts_above.find(runtime_part::kind::tasks);
  return tasks == nullptr ? nullptr : static_cast<task_service*>(tasks)->task_on(*self);
}

// Resumes a task on the runner's stack, as the callbacks' runners call a callback.
// True if the task is to go on, after others.
bool task_service::enter(runner& own, task_core& t) noexcept {
  fiber& self = own.self;
  sched_.board.cover_owed();
  worker& here = *current_worker();
  here.share_when_due();
  here.new_stretch(t.made_at.file, t.made_at.line());
  const bool is_ready = run_until_it_waits(own, t);
  worker& now_here = *current_worker();
  if (sched_.clock.is_virtual()) detail::count_work(now_here, self);  // while the task is named
  now_here.new_stretch("vigil", 0);
  return is_ready;
}

// Called each time that the user's code has left the runner, which has the task still.
// The guards come after the values: one may own a guard, or leave one behind.
void task_service::leave(fiber& self, const task_core& t) noexcept {
  self.destroy_locals();
  if ((self.guards.shields | self.guards.no_parks | self.guards.pins) != 0) {
    t.fatal_here(
        "holds a this_fiber::pin, shield or no_park across a co_await, or at its end: such a guard "
        "belongs to the runner, and must end before");
  }
  if (self.deferred != nullptr) [[unlikely]]
    sched_.timers().release_deferred(self);
  self.stops_thrown = 0;
}

bool task_service::run_until_it_waits(runner& own, task_core& t) noexcept {
  constexpr int awaits_together = 16;  // are counted
  for (int laps = 0, transfers = awaits_together;;) {
    // ordering: the task is the runner's own now.
    t.park.store(task_core::park_word::running, order::relaxed);
    t.wanted = task_core::step::transfer;
    std::exchange(t.next, {}).resume();
    if (t.wanted == task_core::step::transfer) {
      if (--transfers != 0) continue;
      transfers = awaits_together;
      // Another task is awaited, or has ended: the queue goes first, for once.
      if (!spend_calls(awaits_together) || !must_give_way(own.self)) continue;
      t.wanted = task_core::step::yield;
    }
    leave(own.self, t);
    switch (t.wanted) {
      case task_core::step::wait:
        // TK1. Pairs with the exchange of the one who ends the wait.
        if (t.park.exchange(task_core::park_word::suspended, order::acq_rel) !=
            task_core::park_word::woken) {
          return false;
        }
        if (++laps < static_cast<int>(tasks_per_turn)) continue;
        break;
      case task_core::step::end:
        finish(own, t);
        return false;
      case task_core::step::yield:
        // ordering: for those who look inside.
        t.park.store(task_core::park_word::woken, order::relaxed);
        break;
      case task_core::step::transfer:
        break;
    }
    return true;
  }
}

void task_service::finish(runner& own, task_core& t) noexcept {
  sched_.timers().forget(t.own_waiter);
  const bool has_thrown = t.frame.error != nullptr;
  if (has_thrown) {
    try {
      std::rethrow_exception(t.frame.error);
    } catch (const stopped&) {
      t.ended = task_core::ending::by_stop;
    } catch (const cancelled& e) {
      if (t.must_stop()) t.ended = task_core::ending::by_stop;
      if (sched_.state.is_by_my_end(e)) t.ended = task_core::ending::by_shutdown;
    } catch (const deadlock& e) {
      if (sched_.state.ends_silently(e)) t.ended = task_core::ending::by_stop;
    } catch (...) {  // for the joiner
    }
    if (t.ended != task_core::ending::by_itself) t.frame.error = nullptr;
  }
  waiter* joiner = nullptr;
  bool is_detached = false;
  {
    const lock_guard guard(lock_);
    all_.remove(t);
    own.comes_out();  // the next task may be made at the same address
  }
  {
    const lock_guard guard(t.lock());
    is_detached = t.is_detached;
    open_wait* const w = t.joiner;
    t.note_handler(sched_.settings().on_unhandled.box());
    // Pairs with the acquire in has_ended().
    t.has_ended.store(true, order::release);
    if (w != nullptr && w->claim(outcome::value)) joiner = w->whose;
  }
  if (joiner != nullptr) joiner->deliver(run_order::in_order);
  if (is_detached && t.frame.error != nullptr) t.report();
  // on_unhandled and the destructor of an exception were code of the user's as well. So
  // are those of the parameters and the result, if the task has no joiner left.
  if (has_thrown) leave(own.self, t);
  if (t.is_last_owner()) {
    t.outermost.destroy();
    leave(own.self, t);
    delete &t;
  }
  fiber_chain idle;
  {
    const lock_guard guard(lock_);
    if (all_.empty()) {  // TV3
      spare_ += static_cast<unsigned>(idle_.size());
      idle.splice_back(idle_);
    }
  }
  while (fiber* const f = idle.pop_front())
    ready(*f);
  sched_.fibers.count_alive(-1);
}

// The latest first: it may be owned by an earlier one, which waits for its end on a
// stack.
void task_service::stop_all() noexcept {
  constexpr std::size_t at_once = 64;  // under one hold of the lock
  std::size_t left = SIZE_MAX;
  std::uint64_t newest = 0;
  while (left != 0) {
    wake_list stopped_now;
    {
      const lock_guard guard(lock_);
      asks_for_stack_ = false;  // see ask_for_stack()
      if (left == SIZE_MAX) {
        left = all_.size();
        newest = last_id_;
      }
      for (std::size_t i = 0; i < at_once && left != 0; ++i) {
        task_core* const t = all_.back();
        if (t == nullptr) {
          left = 0;
          break;
        }
        all_.remove(*t);
        all_.push_front(*t);
        if (t->id <= newest) --left;
        if (t->own_waiter.claim_stop()) stopped_now.add(t->own_waiter);
      }
    }
    stopped_now.deliver();
  }
}

}  // namespace VIGIL_DETAIL
