// blocking(f): runs a call that blocks its thread on a thread made for that.
//
//   std::string text = vigil::blocking([&] { return read_whole_file(path); });
//
// A fiber that calls read(), getaddrinfo() or a compressor keeps its worker from running
// other fibers. blocking(f) parks the fiber, runs f on a thread of a side pool, and
// returns f's result or throws its exception. Behaviour: libuv's thread pool.
//
// Each runtime has one pool. Its threads (4, options::blocking_threads, or the variable
// VIGIL_BLOCKING_THREADS) are made when first needed, and kept. Functions start in the
// order of the calls. Calls that may occupy all threads for long belong in a separate
// blocking_pool.
//
// f runs on a plain thread, where runtime::go starts fibers, and is destroyed there.
// Until then it is outside work: no deadlock is reported, and virtual time stands still.
// On virtual time the caller continues when nothing else can run and no other f runs; so
// f must not wait for a fiber that sleeps or is in blocking() itself.
//
// A deadline, a context or a stop keeps a queued f from starting, but cannot end a
// running one: the caller continues at once, and the result is dropped. So f must own its
// data, unless no deadline or context limits the call and no stop can end it, as under
// this_fiber::shield. The shutdown waits for running functions, at most
// options::stop_limit, then names them and ends the program.
#pragma once

#include <vigil/detail/blocking_core.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/stats.hpp>

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace VIGIL_PUBLIC {

// blocking_options: the settings of a blocking_pool. Throws nothing; the constructor of
// the pool refuses a bad number. Thread safety: a plain value. Lifetime: the name is
// copied.
struct blocking_options {
  // The largest number of threads, 1 to 1024. If not given: VIGIL_BLOCKING_THREADS from
  // the environment, otherwise 4.
  std::optional<std::size_t> threads = {};
  // The prefix of the thread names, which are "blocking/1", …, at most 15 bytes in all.
  std::string_view name = "blocking";
};

// blocking_pool: a dedicated side pool. Throws std::invalid_argument from the
// constructor. Thread safety: it may be made and used on any thread, and shared by fibers
// of several runtimes.
//
// Lifetime: the destructor blocks its thread until all queued and running functions have
// ended. Only on a thread of the pool itself (when a function, or one of its captures,
// held the last pointer to the pool) does it return at once; the pool's threads then
// finish the functions and end. Shutdown: the end of a run waits for functions that its
// fibers called. Cost: threads are made when first needed, and kept.
class VIGIL_API blocking_pool {
 public:
  // Makes no thread yet. Throws std::invalid_argument if the number of threads, in the
  // options or in the environment, is out of range.
  explicit blocking_pool(const blocking_options& settings = {});
  // Waits: throws nothing.
  ~blocking_pool();
  blocking_pool(const blocking_pool&) = delete;
  blocking_pool& operator=(const blocking_pool&) = delete;

  blocking_stats stats() const;  // any thread

  // For blocking() only.
  detail::side_pool* core() const noexcept { return core_; }

 private:
  detail::side_pool* core_;
};

// Returns the statistics of the side pool of the calling fiber's runtime. Throws
// wrong_place elsewhere: a plain thread asks runtime::stats(). Thread safety: any fiber.
// Shutdown: works during it. Cost: a short lock.
VIGIL_API blocking_stats stats_of_blocking();

// Runs f on a thread of the runtime's side pool, or of the given pool, and returns its
// result or throws its exception. On a plain thread f runs right there. Thread safety:
// any fiber or thread; f runs beside its caller's worker. Lifetime: f owns its data if a
// limit or a stop can end the call, after which f may run on. Shutdown: a queued f is
// dropped if a stop ends its caller's wait; run() waits for a running one, at most
// options::stop_limit. Cost: two allocations and two hand-overs between threads (about 10
// us). Behaviour: libuv's thread pool.
//
// Throws `stopped` if the fiber is asked to stop meanwhile; std::invalid_argument for an
// empty function or a bad VIGIL_BLOCKING_THREADS; std::system_error if the pool has no
// thread and none can be started; wrong_place inside a handler on a worker's own stack,
// where nothing can wait; std::bad_alloc.
template <detail::blocking_function F>
detail::blocking_result<F> blocking(F&& f, const site& from = site::current()) {
  return detail::finish_blocking(nullptr, detail::no_limit, from, std::forward<F>(f));
}

template <detail::blocking_function F>
detail::blocking_result<F> blocking(blocking_pool& pool,
                                    F&& f,
                                    const site& from = site::current()) {
  return detail::finish_blocking(pool.core(), detail::no_limit, from, std::forward<F>(f));
}

// The same; throws `cancelled` when ctx is done. f is not queued if ctx is done already,
// and never runs if it is still in the queue; if it runs, it continues and its result is
// dropped. On a plain thread f runs to its end.
template <detail::blocking_function F>
detail::blocking_result<F> blocking(const context& ctx, F&& f, const site& from = site::current()) {
  return detail::finish_blocking(nullptr, detail::cancelled_by(ctx), from, std::forward<F>(f));
}

template <detail::blocking_function F>
detail::blocking_result<F> blocking(blocking_pool& pool,
                                    const context& ctx,
                                    F&& f,
                                    const site& from = site::current()) {
  return detail::finish_blocking(pool.core(), detail::cancelled_by(ctx), from, std::forward<F>(f));
}

template <class write = detail::f_is_called_without_arguments>
void blocking(...) VIGIL_REFUSED(VIGIL_WANTS_PLAIN_FUNCTION);

// blocking with a timeout: returns f's result in an optional, which is empty if the time
// ran out first; for an f that returns nothing, whether it has run. With a zero or
// negative timeout f is not queued. On a plain thread f runs to its end. Throws what
// blocking throws. Thread safety: that of blocking. Lifetime: that of blocking. Shutdown:
// that of blocking. Cost: that of blocking.
template <detail::duration_like D, detail::blocking_function F>
[[nodiscard]] auto blocking_for(const D& timeout, F&& f, const site& from = site::current()) {
  return detail::call_blocking(nullptr, detail::within(timeout), from, std::forward<F>(f));
}

template <detail::duration_like D, detail::blocking_function F>
[[nodiscard]] auto blocking_for(blocking_pool& pool,
                                const D& timeout,
                                F&& f,
                                const site& from = site::current()) {
  return detail::call_blocking(pool.core(), detail::within(timeout), from, std::forward<F>(f));
}

void blocking_for(detail::write_a_duration_such_as_5ms, ...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

void blocking_for(blocking_pool& pool, detail::write_a_duration_such_as_5ms, ...)
    VIGIL_REFUSED(VIGIL_WANTS_DURATION);

template <detail::duration_like D, class write = detail::f_is_called_without_arguments>
void blocking_for(const D&, ...) VIGIL_REFUSED(VIGIL_WANTS_PLAIN_FUNCTION);

// blocking with a deadline of any clock; returns what blocking_for does. Throws what
// blocking throws. Thread safety: that of blocking. Lifetime: that of blocking. Shutdown:
// that of blocking. Cost: that of blocking.
template <detail::time_point_like Time, detail::blocking_function F>
[[nodiscard]] auto blocking_until(const Time& t, F&& f, const site& from = site::current()) {
  return detail::call_blocking(nullptr, detail::until(t), from, std::forward<F>(f));
}

template <detail::time_point_like Time, detail::blocking_function F>
[[nodiscard]] auto blocking_until(blocking_pool& pool,
                                  const Time& t,
                                  F&& f,
                                  const site& from = site::current()) {
  return detail::call_blocking(pool.core(), detail::until(t), from, std::forward<F>(f));
}

}  // namespace VIGIL_PUBLIC
