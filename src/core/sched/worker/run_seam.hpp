// run_seam: the functions that a scheduler needs from the parts that begin, watch and end
// its runs, so that the rooms below need not know them. run_core fills it.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

class idler;

class run_seam {
 public:
  // --- workers, on their own stacks
  // Hands out the signals that have come.
  virtual void take_signals() noexcept = 0;
  // All workers sleep, and no deadline is to come. Caller: the last one to lie down, once
  // it has.
  virtual void all_rest() noexcept = 0;
  // On virtual time, when nothing is ready and no timer is due: true if a timer is due
  // now, since the clock has jumped.
  virtual bool clock_has_jumped(idler& w) noexcept = 0;

 protected:
  ~run_seam() = default;
};

}  // namespace VIGIL_DETAIL
