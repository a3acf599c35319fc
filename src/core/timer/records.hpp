// records: the memory of timers. It is type-stable (record_pool.hpp), so an entry may
// look at the record of a timer that is gone.
#pragma once

#include "core/timer/timer_record.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

class timer_service;
class worker;

// Make a timer of the runtime with the generation `run`. The caller owns the first
// reference and, for a callback, the first handle. They throw std::bad_alloc.
runtime_timer* make_plain_record(timer_kind kind, timer_service& s, std::uint32_t run);
timer_record* make_callback_record(timer_service& s,
                                   std::uint32_t run,
                                   callback&& f,
                                   nanos period,
                                   bool from_end,
                                   const site& from);

// Gives back the records that the worker keeps for itself. Caller: nothing runs on the
// worker any more.
void give_back_records(worker& w, timer_service& s) noexcept;

// Destroys the captures of every callback of the service's runtime, whatever handles
// there are; the records stay for those. Caller: the runtime has ended, and nothing is
// pending.
void end_callbacks(timer_service& s) noexcept;

}  // namespace VIGIL_DETAIL
