// run_core::run(): the parts that exist for the length of a run, and the main fiber.
// How a run ends is in end.cpp.
#include "core/sched/run_core.hpp"

#include "core/base/at_end.hpp"
#include "core/base/words.hpp"
#include "core/sched/overseer/overseer.hpp"
#include "core/sched/process/process.hpp"
#include "core/sched/process/process_fork.hpp"

#include <vigil/error.hpp>

#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <pthread.h>

namespace VIGIL_DETAIL {
namespace {

// The function that run() gives to the main fiber, and how it has ended.
class main_task {
 public:
  main_task(run_core& s, call_ref body) noexcept : sched_(s), body_(body) {}

  void run(fiber& self) noexcept {
    if (!sched_.settings().pin_main) let_go(self);
    const bool returned = call(self, body_);
    sched_.end.release_user_work(self);
    sched_.end.note_main_returned();
    if (returned && sched_.end.waits_for_all()) wait_until_final(self);
    sched_.end.finish_run(self);
  }

  bool was_stopped() const noexcept { return stopped_; }  // instead of returning

  void rethrow() {
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  // RE0. A stop that ends before_end() did not end the function, so it is not noted.
  void wait_until_final(fiber& self) noexcept {
    const auto& before_end = sched_.settings().before_end;
    bool asks = before_end != nullptr;
    auto ask = [&] { asks = before_end(); };
    for (bool waits = true; waits;) {
      sched_.end.wait_until_all_done(self);
      if (!asks || sched_.state.phase() != run_phase::running) return;
      waits = call(self, ask);
      sched_.end.release_user_work(self);
      stopped_ = false;
      current_worker()->yield();  // so that a stop is seen even if it asks for ever
    }
  }

  // It was pinned so that no other worker could be the first to enter it.
  static void let_go(fiber& self) noexcept {
    self.guards.pins = 0;
    self.pinned = nullptr;
  }

  bool call(const fiber& self, const call_ref& body) noexcept {
    const run_state& state = sched_.state;
    try {
      body();
      return true;
    } catch (const stopped&) {
      stopped_ = true;
    } catch (const cancelled& e) {
      stopped_ = state.ends_silently(self, e);
      if (!stopped_) error_ = std::current_exception();
    } catch (const deadlock& e) {
      if (!state.ends_silently(e)) error_ = std::current_exception();  // else run() throws its own
    } catch (...) {
      error_ = std::current_exception();
    }
    return false;
  }

  run_core& sched_;
  const call_ref body_;
  bool stopped_ = false;
  std::exception_ptr error_;
};

constexpr body_table main_table = {
    [](void* body) { static_cast<main_task*>(*static_cast<void**>(body))->run(*current_fiber()); },
    [](void*) noexcept {},
    [](void*) noexcept {},
    [](void*) noexcept -> void* { return nullptr; }};

}  // namespace

bool run_core::run(call_ref body) {
  if (current_fiber() != nullptr) {
    throw wrong_place(
        "vigil::run inside a fiber: use go or spawn; a second runtime needs a thread "
        "of its own");
  }
  const bool is_stopped = end.open_run();
  bool has_begun = false;  // false: it was an attempt
  const at_end closed([&] { end.close_run(has_begun); });
  state.begin();
  on_virtual_time.begin_run();
  process_count_own_threads(1);
  if (!settings_.is_observer) deadlocks.join();
  // Leaves before it releases the root context: until then another runtime that looks for
  // a deadlock reads that.
  const at_end left([this] {
    if (!settings_.is_observer) deadlocks.leave();
    if (cancel_node* const node = end.root.exchange(nullptr)) node->release();
    process_count_own_threads(-1);
  });
  // A virtual clock may stand still for ever: nobody would give the memory back.
  const warm_stacks warm(clock.is_virtual() ? 0 : settings_.warm_stacks);
  const nanos now = monotonic_now();
  for (const auto& w : workers_)
    w->ran.begin(w->counters.stretch(), now);
  std::optional<overseer> watched;
  const process_guard process(*this);
  watches_.present().run_begins();
  const at_end told([this] { watches_.present().run_ends(); });  // another one, perhaps
  main_task task(*this, body);
  timers_->open();
  fiber* main = nullptr;
  try {
    main = &make_main_fiber(&task);
    if (overseer::is_needed(*this)) watched.emplace(*this);
    start_workers();
  } catch (...) {
    if (main != nullptr) abandon(*main);
    timers_->abort_open();
    throw;
  }
  has_begun = true;
  // A stop that was asked for before the run begins now, before the main fiber is
  // entered.
  if (is_stopped) end.begin();
  end.set_main_fiber(main);
  start(*main);
  {
    const thread_guard thread;
    workers_[0]->run();
  }
  for (const auto& w : workers_)
    w->join_thread();
  signals.dismiss_watchers();
  task.rethrow();
  if (state.deadlocked()) {
    throw deadlock(
        "vigil: deadlock: every fiber was parked, no timer was pending and no outside "
        "work was announced; the dump has been written to standard error");
  }
  return task.was_stopped();
}

fiber& run_core::make_main_fiber(void* task) {
  fiber& f = make_fiber(settings_.main_stack_size,
                        "main",
                        sizeof(task),
                        alignof(void*),
                        site{"vigil::run", 0},
                        fiber_role::main);
  ::new (f.body) void*(task);
  f.table = &main_table;
  f.pinned = workers_[0].get();
  f.guards.pins = 1;
  return f;
}

void run_core::start_workers() {
  constexpr std::uint32_t wait = 0;
  constexpr std::uint32_t go = 1;
  constexpr std::uint32_t give_up = 2;
  gate_.store(wait);
  const auto open_gate = [this](std::uint32_t order) {
    gate_.store(order);
    for (std::size_t i = 1; i < workers_.size(); ++i)
      words::wake_one(gate_);
  };
  // Returns how many threads there were, this one included.
  const auto send_home = [&] {
    open_gate(give_up);
    std::size_t started = 1;
    for (const auto& w : workers_)
      started += w->join_thread() ? 1 : 0;
    return started;
  };
  try {
    for (std::size_t i = 1; i < workers_.size(); ++i) {
      worker* const w = workers_[i].get();
      w->start_thread([this, w] {
        char name[16];
        std::snprintf(name, sizeof name, "vigil/%u", w->index);
        ::pthread_setname_np(::pthread_self(), name);
        while (gate_.load() == wait)
          words::wait(gate_, wait, never);
        if (gate_.load() == give_up) return;
        const thread_guard thread;
        w->run();
      });
    }
  } catch (const std::system_error& e) {
    const std::size_t started = send_home();
    throw std::system_error(e.code(),
                            "vigil::run: worker thread " + std::to_string(started + 1) + " of " +
                                std::to_string(workers_.size()) +
                                " cannot be started; ask for fewer in options::workers, or raise "
                                "the limit on threads (ulimit -u, cgroup pids.max)");
  } catch (...) {  // std::bad_alloc
    send_home();
    throw;
  }
  // The workers count as looking from now on: work that the main fiber makes before their
  // threads have come up is for them.
  for (std::size_t i = 1; i < workers_.size(); ++i)
    workers_[i]->idling.start_looking();
  open_gate(go);
}

}  // namespace VIGIL_DETAIL
