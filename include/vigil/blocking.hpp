// blocking(f): calls that block their thread, on threads that are there for it.
//
//   std::string text = vigil::blocking([&] { return read_whole_file(path); });
//
// A fiber that calls read(), getaddrinfo() or a compressor keeps its worker, and
// all fibers that wait for that one. blocking(f) runs f on a thread of a side
// pool instead, parks the fiber, and returns what f returned or throws what f
// threw.
//
// The runtime has one pool, of 4 threads unless options::blocking_threads or the
// environment variable VIGIL_BLOCKING_THREADS says otherwise; they are made when
// they are first needed, and kept. Functions start in the order in which they
// were given. A class of calls that may take all threads for long (name look-ups
// are the classic one) gets a blocking_pool of its own.
//
// f runs on a plain thread: no fiber, no runtime there. It may use channels and
// whatever else works from plain threads; runtime::go starts fibers. It is
// destroyed on that thread as soon as it has returned.
//
// While it is queued or runs it is outside work: no deadlock is reported, and
// virtual time stands still. On virtual time its caller goes on when nothing
// else can run and all other functions have returned as well, so f must not wait
// there for a fiber that sleeps or is in blocking() itself.
//
// Ended early, by a deadline or a stop: if f has not started, it never does. If
// it runs, nothing can end it: the caller goes on at once, and what f returns or
// throws is dropped on its thread. So f owns what it uses; references to the
// caller's variables are for calls without a deadline on fibers that are not
// stopped, or under this_fiber::shield. The shutdown waits for functions that
// run, options::stop_limit at most, then names them and ends the program.
//
// Cost: two allocations, two hand-overs between threads (about 10 us).
// Behaviour: libuv's thread pool.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/fiber_core.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/stats.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace vigil {
inline namespace VIGIL_ABI {

struct blocking_options {
  // Threads at most, 1 to 1024. Not given: VIGIL_BLOCKING_THREADS from the
  // environment, or else 4.
  std::optional<std::size_t> threads = {};
  // Of its threads, with their numbers: "blocking/1"; 15 bytes in all.
  std::string_view name = "blocking";
};

// A side pool of one's own. Any thread may make and use it; fibers of several
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

// Of the calling fiber's runtime's own pool; throws wrong_place elsewhere. A plain
// thread asks runtime::stats().
VIGIL_API blocking_stats stats_of_blocking();

namespace detail {

struct blocking_table {
  void (*run)(void* record) noexcept;      // calls f, keeps what comes of it, destroys f
  void (*destroy)(void* record) noexcept;  // the record with what was kept
};

// False on a plain thread, where f just runs. Throws wrong_place on a worker
// that runs no fiber; `cancelled` if the limit's context is done.
VIGIL_API bool goes_to_side_pool(const wait_limit& limit);
// True: f has run, the record is the caller's. False: the limit came first, and
// the record is gone, as it is when this throws.
// Waits: throws stopped, wrong_place, std::invalid_argument, std::system_error,
// std::bad_alloc, what f throws.
VIGIL_API bool run_blocking(void* pool, const blocking_table& table, void* record,
                            const wait_limit& limit, const site& from);

// What the caller and the pool's thread share.
template <class F>
class blocking_record {
 public:
  using result = std::invoke_result_t<F>;

  template <class G>
  explicit blocking_record(G&& f) : function_(std::in_place, std::forward<G>(f)) {}

  static constexpr blocking_table table = {
      [](void* self) noexcept { static_cast<blocking_record*>(self)->run(); },
      [](void* self) noexcept { delete static_cast<blocking_record*>(self); }};

  result take() {
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
    if constexpr (!std::is_void_v<result>) return std::move(*result_);
  }

 private:
  struct nothing {};

  void run() noexcept {
    try {
      if constexpr (std::is_void_v<result>) {
        std::move (*function_)();
      } else {
        result_.emplace(std::move(*function_)());
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    function_.reset();
  }

  std::optional<F> function_;
  std::optional<std::conditional_t<std::is_void_v<result>, nothing, result>> result_;
  std::exception_ptr error_;
};

template <class F>
using blocking_result = typename blocking_record<std::decay_t<F>>::result;

// Of a form with a deadline: an optional result, or whether f has run.
template <class R>
using blocking_answer = std::conditional_t<std::is_void_v<R>, bool, std::optional<R>>;

template <class F>
auto call_blocking(void* pool, const wait_limit& limit, const site& from, F&& f) {
  using record = blocking_record<std::decay_t<F>>;
  using R = typename record::result;
  static_assert(!std::is_reference_v<R>,
                "vigil::blocking: f cannot return a reference; return a pointer or a value");
  refuse_empty("vigil::blocking", f);
  using answer = blocking_answer<std::conditional_t<std::is_void_v<R>, void, R>>;
  if (limit.is_over()) return answer{};
  if (!goes_to_side_pool(limit)) {
    if constexpr (std::is_void_v<R>) {
      std::forward<F>(f)();
      return true;
    } else {
      return answer(std::in_place, std::forward<F>(f)());
    }
  }
  auto* const made = new record(std::forward<F>(f));
  if (!run_blocking(pool, record::table, made, limit, from)) return answer{};
  struct owner {
    record* held;
    ~owner() { delete held; }
  } const dies_here{made};
  if constexpr (std::is_void_v<R>) {
    made->take();
    return true;
  } else {
    return answer(std::in_place, made->take());
  }
}

// For the forms without a time: what f returned.
template <class F>
blocking_result<F> finish_blocking(void* pool, const wait_limit& limit, const site& from, F&& f) {
  if constexpr (std::is_void_v<blocking_result<F>>) {
    call_blocking(pool, limit, from, std::forward<F>(f));
  } else {
    return std::move(*call_blocking(pool, limit, from, std::forward<F>(f)));
  }
}

}  // namespace detail

// Runs f on a thread of the runtime's side pool, or of the one given, and
// returns its result or throws what it threw. Throws `stopped` if the fiber is
// asked to stop meanwhile; std::invalid_argument for an empty function or a bad
// VIGIL_BLOCKING_THREADS; std::system_error if the pool has no thread and none
// can be started; wrong_place inside a handler on a worker's own stack, where
// nothing can wait; std::bad_alloc. On a plain thread f simply runs there.
template <class F>
requires std::is_invocable_v<std::decay_t<F>>
detail::blocking_result<F> blocking(F&& f, const site& from = site::current()) {
  return detail::finish_blocking(nullptr, detail::no_limit, from, std::forward<F>(f));
}

template <class F>
requires std::is_invocable_v<std::decay_t<F>>
detail::blocking_result<F> blocking(blocking_pool& pool, F&& f, const site& from = site::current()) {
  return detail::finish_blocking(pool.core(), detail::no_limit, from, std::forward<F>(f));
}

// The same until ctx is done: then throws `cancelled`. If it is done already f is
// not even queued; taken out of the queue it never runs; one that runs goes on,
// and its result is dropped. On a plain thread f runs to its end.
template <class F>
requires std::is_invocable_v<std::decay_t<F>>
detail::blocking_result<F> blocking(const context& ctx, F&& f, const site& from = site::current()) {
  return detail::finish_blocking(nullptr, detail::under(ctx), from, std::forward<F>(f));
}

template <class F>
requires std::is_invocable_v<std::decay_t<F>>
detail::blocking_result<F> blocking(blocking_pool& pool, const context& ctx, F&& f,
                                    const site& from = site::current()) {
  return detail::finish_blocking(pool.core(), detail::under(ctx), from, std::forward<F>(f));
}

// The same with a timeout: f's result in an optional, which is empty if the time
// was over first; for an f that returns nothing, whether it has run. Zero or
// negative: f is not even queued. On a plain thread f runs to its end.
template <detail::duration_like D, class F>
requires std::is_invocable_v<std::decay_t<F>>
[[nodiscard]] auto blocking_for(const D& timeout, F&& f, const site& from = site::current()) {
  return detail::call_blocking(nullptr, detail::within(timeout), from, std::forward<F>(f));
}

template <detail::duration_like D, class F>
requires std::is_invocable_v<std::decay_t<F>>
[[nodiscard]] auto blocking_for(blocking_pool& pool, const D& timeout, F&& f,
                                const site& from = site::current()) {
  return detail::call_blocking(pool.core(), detail::within(timeout), from, std::forward<F>(f));
}

// The same with a deadline, of any clock.
template <detail::time_point_like Time, class F>
requires std::is_invocable_v<std::decay_t<F>>
[[nodiscard]] auto blocking_until(const Time& t, F&& f, const site& from = site::current()) {
  return detail::call_blocking(nullptr, detail::until(t), from, std::forward<F>(f));
}

template <detail::time_point_like Time, class F>
requires std::is_invocable_v<std::decay_t<F>>
[[nodiscard]] auto blocking_until(blocking_pool& pool, const Time& t, F&& f,
                                  const site& from = site::current()) {
  return detail::call_blocking(pool.core(), detail::until(t), from, std::forward<F>(f));
}

}  // namespace VIGIL_ABI
}  // namespace vigil
