// runtime_part: a part of each runtime that its users may not need, made by the first
// one who does: the tasks.
#pragma once

#include <vigil/detail/config.hpp>

namespace vigil::inline VIGIL_ABI::detail {

class dump_writer;
struct shown_tasks;  // task/shown_tasks.hpp

class runtime_part {
 public:
  virtual ~runtime_part() = default;

  // Ends every open stoppable wait. Called once run_state::stopping() is true (RE3).
  virtual void stop_all() noexcept = 0;

  // Lists what waits, for a dump. May be called by a signal's handler.
  virtual void write(dump_writer& out) noexcept = 0;

  // Copies what dumps show of some tasks. False if that would have to wait, and may not.
  virtual bool copy(shown_tasks& out) noexcept = 0;

 protected:
  runtime_part() = default;
  runtime_part(const runtime_part&) = delete;
  runtime_part& operator=(const runtime_part&) = delete;
};

}  // namespace vigil::inline VIGIL_ABI::detail
