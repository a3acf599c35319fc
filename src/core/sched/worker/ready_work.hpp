// ready_work: whether there is anything to do in one runtime, wherever it lies: in the
// workers' queues, the injection queue, the signals, the callbacks, or the end of the
// run. For the last look before sleep (IS2 of idle.hpp), for a worker that stops looking,
// and for those that look from above. All looks are sequentially consistent.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

class scheduler;

// Whether there is anything for any worker. Inboxes do not count: their owners look.
// `callbacks`: so many of those that wait are as good as taken.
bool any_work(const scheduler& s, std::size_t callbacks = 0) noexcept;
// Whether there is anything in no worker's own queue.
bool any_work_in_common(const scheduler& s, std::size_t callbacks = 0) noexcept;
// Whether there is more than what a worker takes next from its own queue.
bool much_work(const scheduler& s) noexcept;
// Whether a fiber is ready that only one worker may take.
bool any_pinned_work(const scheduler& s) noexcept;
// Whether a fiber or a callback is ready, or a timer due, that no worker has taken yet.
// Not on virtual time.
bool waits_for_a_worker(const scheduler& s) noexcept;
// The same without the fibers that only one worker may take.
bool waits_for_any_worker(const scheduler& s) noexcept;

}  // namespace VIGIL_DETAIL
