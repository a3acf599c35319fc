#include "task/task_service.hpp"

#include "base/assert.hpp"
#include "sched/fiber/park.hpp"
#include "sched/report/dump_writer.hpp"
#include "sched/wait/wake_list.hpp"
#include "timer/system_fiber.hpp"

#include <vigil/error.hpp>

#include <memory>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {

task_service& task_service::of(scheduler& s) {
  runtime_part* seen = s.end.part.load();
  if (seen == nullptr) {
    auto made = std::make_unique<task_service>(s);
    if (s.end.part.compare_exchange_strong(seen, made.get())) seen = made.release();
  }
  return static_cast<task_service&>(*seen);
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
  if (runners_ == 0) {  // TV3
    ++runners_;
    lock_.unlock();
    fiber* reserve = nullptr;
    try {
      reserve = &make_runner();
    } catch (...) {
      const lock_guard guard(lock_);
      --runners_;
      throw;
    }
    lock_.lock();
    idle_.push_back(*reserve);
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
    ready_.push_back(t);
    wanted = wants_spare();
  }
  if (wanted) ready_one();
}

// Whether the caller has to call ready_one().
bool task_service::wants_spare() const noexcept {
  return spare_ == 0 && !ready_.empty();
}

// Readies a runner, unless one is spare by now (TV1).
void task_service::ready_one() noexcept {
  fiber* f = nullptr;
  {
    const lock_guard guard(lock_);
    if (!wants_spare()) return;
    ++spare_;  // TV2
    f = idle_.pop_front();
    if (f == nullptr) ++runners_;
  }
  if (f == nullptr) {
    try {
      f = &make_runner();
    } catch (...) {
      // No stack: the tasks wait for the next runner that comes out of one.
      const lock_guard guard(lock_);
      --spare_;
      --runners_;
      return;
    }
  }
  ready(*f);
}

// The next task. On virtual time the seed draws it.
task_core* task_service::pop() noexcept {
  if (!sched_.clock.is_virtual() || ready_.size() < 2) return ready_.pop_front();
  constexpr std::size_t most = 16;
  const auto n = static_cast<std::uint32_t>(ready_.size() < most ? ready_.size() : most);
  // The ones before it go behind, in their order: any order is as good.
  for (std::uint32_t i = current_worker()->dice().below(n); i > 0; --i)
    ready_.push_back(*ready_.pop_front());
  return ready_.pop_front();
}

void task_service::body() {
  fiber& self = *current_fiber();
  for (unsigned turns = 0;;) {
    lock_.lock();
    task_core* const t = pop();
    --spare_;
    if (t == nullptr) {
      const bool needed = !all_.empty() && idle_.size() < idle_kept;
      if (!needed) {
        --runners_;
        lock_.unlock();
        return;
      }
      idle_.push_back(self);
      park(wait_reason::idle_runner, lock_);
      turns = 0;
      continue;
    }
    const bool wanted = wants_spare();
    lock_.unlock();
    if (wanted) ready_one();
    enter(self, *t);
    bool more = false;
    {
      const lock_guard guard(lock_);
      ++spare_;
      more = !ready_.empty();
    }
    if (!more || ++turns < tasks_per_turn) continue;
    turns = 0;
    current_worker()->yield();
  }
}

// Resumes a task on the runner's stack, as the callbacks' runners call a callback.
void task_service::enter(fiber& self, task_core& t) noexcept {
  self.identity.file = t.made_at.file;
  self.identity.line = t.made_at.line();
  sched_.board.cover_owed();
  worker& here = *current_worker();
  here.keep_no_longer();
  here.new_stretch();
  run_until_it_waits(t);
  self.destroy_locals();
  if (self.deferred != nullptr) [[unlikely]]
    sched_.timers().release_deferred(self);
  self.end_guards();
  current_worker()->new_stretch();
  self.identity.file = "vigil";
  self.identity.line = 0;
}

void task_service::run_until_it_waits(task_core& t) noexcept {
  for (unsigned laps = 0;;) {
    // ordering: the task is the runner's own now.
    t.park.store(task_core::park_word::running, order::relaxed);
    t.wanted = task_core::step::transfer;
    std::exchange(t.next, {}).resume();
    switch (t.wanted) {
      case task_core::step::transfer:
        continue;
      case task_core::step::wait:
        // TK1. Pairs with the exchange of the one who ends the wait.
        if (t.park.exchange(task_core::park_word::suspended, order::acq_rel) !=
            task_core::park_word::woken) {
          return;
        }
        if (++laps < tasks_per_turn) continue;
        [[fallthrough]];
      case task_core::step::yield:
        queue(t);
        return;
      case task_core::step::end:
        finish(t);
        return;
    }
  }
}

void task_service::finish(task_core& t) noexcept {
  sched_.timers().forget(t.self);
  if (t.frame.error != nullptr) {
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
  }
  {
    const lock_guard guard(t.lock());
    is_detached = t.is_detached;
    // Pairs with the acquire in has_ended().
    t.has_ended.store(true, order::release);
    open_wait* const w = t.joiner;
    t.on_unhandled = sched_.settings().on_unhandled;
    if (w != nullptr && w->claim(outcome::value)) joiner = w->waiter;
  }
  if (joiner != nullptr) joiner->deliver(turn::in_order);
  if (is_detached && t.frame.error != nullptr) t.report(std::exchange(t.frame.error, nullptr));
  t.release();
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

void task_service::stop_all() noexcept {
  constexpr std::size_t at_once = 64;  // under one hold of the lock
  std::size_t left = SIZE_MAX;
  while (left != 0) {
    wake_list stopped_now;
    {
      const lock_guard guard(lock_);
      if (left == SIZE_MAX) left = all_.size();
      for (std::size_t i = 0; i < at_once && left != 0; ++i, --left) {
        task_core* const t = all_.pop_front();
        if (t == nullptr) {
          left = 0;
          break;
        }
        all_.push_back(*t);
        if (t->self.claim_stop()) stopped_now.add(t->self);
      }
    }
    stopped_now.deliver();
  }
}

void task_service::write(dump_writer& out) noexcept {
  if (!lock_.try_lock()) {
    out.text("tasks: another thread is changing their list; try again\n");
    return;
  }
  const nanos now = sched_.clock.now();
  for (const task_core* t = all_.front(); t != nullptr; t = task_list::next(*t)) {
    const wait_reason why = t->reason.load(order::relaxed);  // ordering: for the reader's eyes
    out.text("task ").number(t->id).text(", started at ").file(t->made_at.file).text(":");
    out.number(t->made_at.line());
    if (why == wait_reason::none) {
      out.text(", ready or running\n");
    } else {
      out.text(", waits for: ").text(to_string(why)).text(" since ");
      out.seconds(now - t->since.load(order::relaxed)).text("\n");  // ordering: as above
    }
  }
  lock_.unlock();
}

}  // namespace vigil::inline VIGIL_ABI::detail
