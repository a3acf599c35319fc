// take_or_wait: the wait for one thing that has a case_table, as a select of it alone,
// but without the select.
#pragma once

#include "core/sched/call/caller.hpp"
#include "core/sched/wait/case_table.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>

namespace VIGIL_DETAIL {

enum class case_look : std::uint8_t { taken, over, refused, queued };

// Takes the case if it is ready. Otherwise, unless the time is over or the owner may not
// wait, queues it with a wait of the owner's. Throws what the case's enqueue() throws.
case_look take_or_queue(select_case& c, bool over, const case_owner& owner);

// The same as take_or_wait(), for a caller that has looked.
bool wait_for_case(select_case& c, const wait_limit& limit, const char* call, caller::mode m);

// True if the case was taken, false if the limit has come. Throws as a wait does, and
// what the case's enqueue() throws. `call` is for the error's text.
[[gnu::always_inline]] inline bool take_or_wait(select_case& c,
                                                const wait_limit& limit,
                                                const char* call,
                                                caller::mode m = caller::stoppable) {
  return c.table->look(c) || wait_for_case(c, limit, call, m);
}

}  // namespace VIGIL_DETAIL
