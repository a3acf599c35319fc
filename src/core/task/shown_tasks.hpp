// shown_tasks: some of a runtime's tasks, copied for those who look inside
// (runtime_part::copy), and how many there are in all.
#pragma once

#include "core/sched/report/fiber_view.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

struct shown_tasks {
  // A signal's handler, and code that may hold any lock, must not wait for the lock of
  // the tasks.
  enum class patience : std::uint8_t { none, waits };

  // --- given: the tasks from the one with the index `first` on, in the order of their
  // starts, as many as there is room for
  patience of_caller = patience::none;
  fiber_view* to = nullptr;
  std::size_t room = 0;
  std::size_t first = 0;
  // --- found, at one moment
  std::size_t copied = 0;
  std::size_t all = 0;
  std::size_t runnable = 0;
  std::size_t running = 0;  // on a runner, perhaps in a wait of a fiber

  std::size_t parked() const noexcept { return all - runnable - running; }
};

}  // namespace VIGIL_DETAIL
