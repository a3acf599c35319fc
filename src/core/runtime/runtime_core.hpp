// The parts of a runtime, put together: this stands above all other layers.
#pragma once

#include "core/blocking/side_pool.hpp"
#include "core/sched/run_core.hpp"
#include "core/timer/timer_service.hpp"

#include <vigil/runtime.hpp>

#include <memory>
#include <mutex>

namespace VIGIL_DETAIL {

// The way to a runtime for outside work that may be released after the runtime has gone.
struct outside_gate {
  std::mutex lock;
  scheduler* sched;  // nullptr once the runtime has gone
};

// The hold of a work_guard on its runtime.
struct outside_hold {
  std::shared_ptr<outside_gate> gate;
};

class runtime_core {
 public:
  explicit runtime_core(const scheduler_options& settings, std::unique_ptr<watch> w = nullptr);
  ~runtime_core();
  runtime_core(const runtime_core&) = delete;
  runtime_core& operator=(const runtime_core&) = delete;

  run_core sched;
  timer_service& timers;
  std::shared_ptr<outside_gate> gate;
  std::unique_ptr<side_pool> blocking;
};

// Ends the program if the headers that have made these settings do not fit the library.
// Called before anything else of the settings is read, since the rest may lie elsewhere.
VIGIL_FOR_IO void refuse_other_headers(const options& settings) noexcept;

// Refuses other headers, checks the values and fills in the defaults of the machine;
// throws std::invalid_argument.
scheduler_options checked(const options& settings);

// Throws what run() throws if its main function was stopped before it had the result;
// `signal`: the one of stop_on that came, or 0.
[[noreturn]] void throw_main_stopped(int signal);

// Makes a runtime that looks at the others (scheduler_options::is_observer). It records
// only if the settings say so, whatever VIGIL_RECORDER_EVENTS says. Throws as the
// constructor of runtime does.
VIGIL_FOR_IO runtime make_observer(const options& settings);

// The access of the library's own parts to a runtime object.
struct runtime_access {
  static runtime_core& core_of(runtime& rt) noexcept { return *rt.core_; }

  // Makes a runtime over a core that the caller has made.
  static runtime over(std::unique_ptr<runtime_core> core) { return runtime(core.release()); }
};

}  // namespace VIGIL_DETAIL
