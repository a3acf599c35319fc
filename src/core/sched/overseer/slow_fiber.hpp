// slow_fibers: options::slow_fiber, which names fibers that keep their worker too long:
// a std::mutex, a sleep of the thread, read(), an endless loop. With vigil-inspect the
// report has the frames of the fiber (dump_extension::report).
//
// The overseer looks at the workers' counts of stretches (worker_counters.hpp), each
// quarter of the limit, so a switch costs nothing. A stretch that goes on for two looks
// after the limit is seen, and so is one that never ends; a shorter one may be missed.
// The clock is the real one, even on virtual time.
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/fiber/fiber.hpp"

#include <vector>

namespace VIGIL_DETAIL {

class scheduler;
class worker;

class slow_fibers {
 public:
  // Watches one run. Called by the overseer from then on. Throws std::bad_alloc.
  slow_fibers(scheduler& of, nanos limit);

  // Looks, if it is time. Returns when it is time again.
  nanos look(nanos now) noexcept;

 private:
  void name(const worker& w, unsigned long stretch, nanos held) noexcept;
  bool is_named(const site& place) const noexcept;

  scheduler& sched_;
  const nanos limit_;
  const nanos tick_;
  nanos next_tick_ = 0;
  std::vector<unsigned long> looked_at_;  // of each worker: the stretch that was named last
  std::vector<site> named_;               // as many as there is room for
};

}  // namespace VIGIL_DETAIL
