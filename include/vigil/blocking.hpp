// blocking(f): calls that block their thread, on threads that are there for it.
//
//   std::string text = vigil::blocking([&] { return read_whole_file(path); });
//
// A fiber that calls read(), getaddrinfo() or a compressor keeps its worker from running
// other fibers. blocking(f) parks the fiber instead, runs f on a thread of a side pool,
// and returns the result of f or throws its exception. Behaviour: libuv's thread pool.
//
// The runtime has one pool. Its threads (4, options::blocking_threads, or the variable
// VIGIL_BLOCKING_THREADS) are made when first needed, and kept. Functions start in the
// order of the calls. Calls that may occupy all threads for long, such as name look-ups,
// belong in a blocking_pool of their own.
//
// f runs on a plain thread: it may use channels and everything else that works there;
// runtime::go starts fibers. It is destroyed there once it has returned. Until then it is
// outside work: no deadlock is reported, and virtual time stands still. On virtual time
// the caller continues when nothing else can run and no other f runs, so f must not wait
// for a fiber that sleeps or is in blocking() itself.
//
// A deadline or a stop keeps a queued f from starting. A running f cannot be ended: the
// caller continues at once, and the result is dropped. So f must own its data; it may
// refer to the caller's variables only without a deadline and on a fiber that is not
// stopped, or under this_fiber::shield. The shutdown waits for running functions,
// options::stop_limit at most, then names them and ends the program. Cost: two
// allocations, two hand-overs between threads (about 10 us).
#pragma once

#include <vigil/detail/blocking_core.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/stats.hpp>

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace vigil::inline VIGIL_ABI {

struct blocking_options {
  // Threads at most, 1 to 1024. Not given: VIGIL_BLOCKING_THREADS from the
  // environment, or else 4.
  std::optional<std::size_t> threads = {};
  // Prefix of the names of its threads, which are "blocking/1", ...; 15 bytes in all.
  std::string_view name = "blocking";
};

// A dedicated side pool. Any thread may make and use it; fibers of several
// runtimes may share it. The destructor waits, blocking its thread, for what is
// queued and running. Only on a thread of the pool itself (a function or what it
// has captured holds the last pointer to the pool) it returns at once: what is
// queued and running goes on, and then the threads end.
class VIGIL_API blocking_pool {
 public:
  // Throws std::invalid_argument for a number of threads out of range, in the
  // options or the environment. Makes no thread yet.
  explicit blocking_pool(const blocking_options& settings = {});
  // Waits: throws nothing.
  ~blocking_pool();
  blocking_pool(const blocking_pool&) = delete;
  blocking_pool& operator=(const blocking_pool&) = delete;

  blocking_stats stats() const;  // any thread

  // For blocking().
  void* core() const noexcept { return core_; }

 private:
  void* core_;
};

// The statistics of the pool of the calling fiber's runtime; throws wrong_place
// elsewhere. A plain thread asks runtime::stats().
VIGIL_API blocking_stats stats_of_blocking();

// Runs f on a thread of the runtime's side pool, or of the one given, and
// returns its result or throws what it threw. Throws `stopped` if the fiber is
// asked to stop meanwhile; std::invalid_argument for an empty function or a bad
// VIGIL_BLOCKING_THREADS; std::system_error if the pool has no thread and none
// can be started; wrong_place inside a handler on a worker's own stack, where
// nothing can wait; std::bad_alloc. On a plain thread f simply runs there.
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

// The same until ctx is done: then throws `cancelled`. If it is done already f is
// not even queued; taken out of the queue it never runs; one that runs goes on,
// and its result is dropped. On a plain thread f runs to its end.
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

// The same with a timeout: f's result in an optional, which is empty if the time
// was over first; for an f that returns nothing, whether it has run. Zero or
// negative: f is not even queued. On a plain thread f runs to its end.
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

// The same with a deadline, of any clock.
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

}  // namespace vigil::inline VIGIL_ABI
