// record_here: an event of the calling fiber, for parts that are told no worker.
#pragma once

#include "core/sched/record/event.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

// Writes the event into the log of the calling worker; nothing on other threads.
void record_here(event_kind kind, std::uint64_t value = 0) noexcept;

// A context has ended by its deadline.
void record_missed_deadline() noexcept;

}  // namespace VIGIL_DETAIL
