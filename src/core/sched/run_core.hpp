// run_core: a scheduler, and the parts that begin, watch and end its runs. It stands
// above the rooms of sched and puts them together: one runtime has one.
#pragma once

#include "core/sched/run/deadlock.hpp"
#include "core/sched/run/run_end.hpp"
#include "core/sched/run/side_call.hpp"
#include "core/sched/run/virtual_time.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>

#include <memory>

namespace VIGIL_DETAIL {

class dump_writer;

class run_core final : public run_seam, public scheduler {
 public:
  // The watch is the futex one if none is given.
  explicit run_core(const scheduler_options& settings, std::unique_ptr<watch> w = nullptr)
      : scheduler(settings, std::move(w), *this) {
    ending.attach([](void* e) noexcept { static_cast<run_end*>(e)->look_again(); }, &end);
  }

  ~run_core() { let_go(); }

  // Runs `body` as the main fiber until it has returned and every fiber has ended.
  // Rethrows the exception that left it; throws deadlock as vigil::run() promises.
  // Returns true if a stop ended the body.
  bool run(call_ref body);

  // Lists the things that keep exit_when::all_done from ending the run, by kind.
  void list_holders(dump_writer& out) noexcept;

  // --- the parts
  run_end end{*this, calls};
  side_calls calls{*this};
  deadlock_finder deadlocks{*this, end};
  virtual_time on_virtual_time{*this, calls, end, deadlocks};

 private:
  // --- run_seam
  void take_signals() noexcept override { end.take_signals(); }

  void all_rest() noexcept override { deadlocks.look(); }

  bool clock_has_jumped(idler& w) noexcept override { return on_virtual_time.has_jumped(w); }

  fiber& make_main_fiber(void* task);
  void start_workers();

  futex_word gate_{0};  // workers start when all threads exist: 1 run, 2 give up
};

// Every scheduler is one.
inline run_core& run_of(scheduler& s) noexcept {
  return static_cast<run_core&>(s);
}

inline const run_core& run_of(const scheduler& s) noexcept {
  return static_cast<const run_core&>(s);
}

}  // namespace VIGIL_DETAIL
