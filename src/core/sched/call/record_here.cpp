#include "core/sched/call/record_here.hpp"

#include "core/sched/record/record_trigger.hpp"
#include "core/sched/worker/worker.hpp"

#include <vigil/trace.hpp>

namespace VIGIL_PUBLIC {

namespace detail {

void record_here(event_kind kind, std::uint64_t value) noexcept {
  worker* const here = current_worker();
  if (here != nullptr && here->counters.log.is_on()) here->counters.log.write(kind, value);
}

void record_missed_deadline() noexcept {
  worker* const here = current_worker();
  if (here == nullptr || !here->counters.log.is_on()) return;
  here->counters.log.write(event_kind::deadline_missed);
  triggers.deadline_missed(here->counters.log.clock());
}

constinit std::atomic<unsigned> runtimes_recording{0};

void region_begins(const char* name) noexcept {
  record_here(event_kind::region_begins, reinterpret_cast<std::uintptr_t>(name));
}

void region_ends() noexcept {
  record_here(event_kind::region_ends);
}

}  // namespace detail

}  // namespace VIGIL_PUBLIC
