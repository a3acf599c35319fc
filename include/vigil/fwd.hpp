// Forward declarations of all public names.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_PUBLIC {

class runtime;
class work_guard;
struct options;
struct runtime_stats;

template <class R>
class fiber;
template <class T>
class fiber_local;
struct fiber_options;

template <class T>
class channel;
template <class T>
class sender;
template <class T>
class receiver;
class scoped_close;
class case_list;

class context;
class cancel_function;
class done_callback;
struct cancellable;
template <class T>
class context_key;
class group;
template <class T>
class group_of;
struct group_options;

class blocking_pool;
struct blocking_options;
struct blocking_stats;

struct clock;
class timer;

namespace detail {
template <class Handle>
class scoped_handle;
}

using scoped_timer = detail::scoped_handle<timer>;
class ticker;
class aligned_ticker;
template <class Clock>
class clock_timer;
struct wall_clock;
struct boot_clock;
struct from_end_t;
class timeout_list;
class timeout_lists;
template <class T>
class expiring;

class mutex;
class shared_mutex;
class condition_variable;
class wait_group;
class latch;
class semaphore;
class scoped_permit;
struct adopt_permit_t;
class once;
template <class Key, class T, class Hash, class Equal>
class single_flight;
class rate;
class rate_limiter;
class reservation;

class stopped;
class cancelled;
class channel_closed;
class deadlock;
class runtime_gone;
class wrong_place;
class limit_reached;

}  // namespace VIGIL_PUBLIC
