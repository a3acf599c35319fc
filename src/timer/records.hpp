// records: the memory of timers. It is type-stable (record_pool.hpp), so an entry may
// look at the record of a timer that has gone.
#pragma once

#include "timer/timer_record.hpp"

#include <cstdint>

namespace vigil::inline VIGIL_ABI::detail {

class worker;

using timer_record = detail::timer_record;

// For a runtime's timers: `run` is its generation. The caller's reference, and its
// handle. They throw std::bad_alloc.
runtime_timer* make_wait_record(timer_service& s, std::uint32_t run, waiter& w);
runtime_timer* make_send_record(timer_service& s,
                                std::uint32_t run,
                                runtime_timer::send_function f,
                                void* argument);
timer_record* make_callback_record(timer_service& s,
                                   std::uint32_t run,
                                   detail::callback&& f,
                                   nanos period,
                                   bool from_end,
                                   const site& from);

// Those that the worker keeps for its own use. Caller: nothing runs on it any more.
void give_back_records(worker& w) noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
