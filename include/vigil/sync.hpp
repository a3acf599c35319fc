// Locks, conditions and counters for fibers: mutex, shared_mutex,
// condition_variable, wait_group, semaphore, latch, once.
//
//   vigil::mutex m;
//   vigil::condition_variable changed;
//   {
//     std::unique_lock lock(m);
//     changed.wait(lock, [&] { return ready; });
//   }
//
// A fiber that waits here gives its worker to others; one that holds a
// vigil::mutex may sleep, receive, or wait for anything else, and may go on on
// another thread. (A std::mutex may not be held across a wait.) They work with
// std::unique_lock, std::scoped_lock, std::shared_lock and std::lock, whose headers
// are included here.
//
// Thread safety: everything may be called from fibers of any runtime and from
// plain threads, in any mix. None of them can be copied or moved. One may be
// destroyed when nobody waits in it or holds it, also right after one's own
// call has returned, while the call that let it return is on its last steps (but
// a `once` only when nobody calls it any more).
//
// What ends a wait: what it waits for; the deadline of the `_for` and `_until`
// forms, never early, which is a result and no exception; a stop of the fiber,
// which throws `stopped`; the end of a context that was handed over, which throws
// `cancelled`. A timeout of zero or less, and a deadline that has passed, only look
// (a condition variable lets its lock go for that moment, so others may come in
// between); one beyond the range of the clock never comes. A deadline may be on
// vigil::clock or on another, which is converted once by its distance from that
// clock's now: the wait is on the runtime's clock, or a thread's monotonic one. But
// a stop does not end the wait for a lock: lock(), lock_shared() and the relocking
// of a condition variable wait on. So two fibers that wait for each other's mutex
// keep a runtime from ending (options::stop_limit). Only a run that ends by a fatal
// deadlock (on_deadlock) ends them, when nothing else can be unwound any more: then
// lock() and lock_shared(), the timed forms too, throw `deadlock` in fibers, and the
// lock is not taken. But not under this_fiber::shield, while the fiber unwinds, or
// for the lock of a condition variable: if only such waits are left, they are named
// after options::stop_limit.
//
// On a plain thread the thread sleeps. Inside a handler on a worker's own stack
// a call that would wait throws wrong_place. The timed forms throw
// std::bad_alloc if their deadline cannot be armed.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/fiber.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>         // std::lock_guard, unique_lock, scoped_lock
#include <shared_mutex>  // std::shared_lock
#include <type_traits>
#include <utility>

namespace vigil {
inline namespace VIGIL_ABI {

// Mutual exclusion. Meets the standard's TimedMutex requirements.
//
// Fairness: who comes while it is free takes it, also before those who wait; but
// once somebody has waited for a millisecond, or has been overtaken a thousand
// of times, the next unlock keeps it for him. Those who wait have it in the
// order in which they came. Behaviour: Go's sync.Mutex.
//
// It does not know its owner: any fiber or thread may unlock it, and locking it
// twice waits for ever. Cost: uncontended, two atomic operations on one word.
class mutex {
 public:
  constexpr mutex() noexcept = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  // Throws wrong_place, and `deadlock` (above) only; not ended by a stop.
  void lock() { lock_within(detail::no_limit); }
  // At most until ctx is done: then throws `cancelled`, and it is not locked.
  void lock(const context& ctx) { lock_within(detail::under(ctx)); }

  [[nodiscard]] bool try_lock() noexcept { return take() || detail::try_lock_slowly(core_); }

  // False if the timeout passes first. Zero or negative: as try_lock.
  template <detail::duration_like D>
  [[nodiscard]] bool try_lock_for(const D& timeout) {
    return lock_within(detail::within(timeout));
  }
  template <detail::time_point_like Time>
  [[nodiscard]] bool try_lock_until(const Time& t) {
    return lock_within(detail::until(t));
  }

  // Throws std::logic_error if it is not locked (a std::lock_guard makes that
  // std::terminate).
  void unlock() {
    std::uint32_t seen = detail::mutex_core::locked;
    // Pairs with the acquire in take() and in lock_slowly().
    if (!core_.word.compare_exchange_strong(seen, 0, std::memory_order_release,
                                            std::memory_order_relaxed)) {
      detail::unlock_slowly(core_);
    }
  }

 private:
  bool lock_within(const detail::wait_limit& limit) {
    return take() || detail::lock_slowly(core_, limit);
  }

  bool take() noexcept {
    std::uint32_t seen = 0;
    // Pairs with the release in unlock() and in unlock_slowly().
    return core_.word.compare_exchange_strong(seen, detail::mutex_core::locked,
                                              std::memory_order_acquire,
                                              std::memory_order_relaxed);
  }

  detail::mutex_core core_;
};

// One writer, or any number of readers. Meets the standard's SharedTimedMutex
// requirements.
//
// Fairness: while a writer waits no new reader gets in; when a writer leaves, all
// readers that wait by then go before the next writer. So neither starves the
// other. Hence a fiber that locks it shared twice may wait for ever, as in Go.
// Otherwise as mutex. Behaviour: Go's sync.RWMutex.
class shared_mutex {
 public:
  constexpr shared_mutex() noexcept = default;
  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;

  void lock() { lock_within(detail::no_limit); }
  // At most until ctx is done: then throws `cancelled`, and it is not locked.
  void lock(const context& ctx) { lock_within(detail::under(ctx)); }
  [[nodiscard]] bool try_lock() noexcept { return take(); }
  template <detail::duration_like D>
  [[nodiscard]] bool try_lock_for(const D& timeout) {
    return lock_within(detail::within(timeout));
  }
  template <detail::time_point_like Time>
  [[nodiscard]] bool try_lock_until(const Time& t) {
    return lock_within(detail::until(t));
  }
  // Throws std::logic_error if it is not locked by a writer.
  void unlock() {
    std::uint32_t seen = word::exclusive;
    // Pairs with the acquires in take() and take_shared().
    if (!core_.word.compare_exchange_strong(seen, 0, std::memory_order_release,
                                            std::memory_order_relaxed)) {
      detail::unlock_slowly(core_);
    }
  }

  void lock_shared() { lock_shared_within(detail::no_limit); }
  void lock_shared(const context& ctx) { lock_shared_within(detail::under(ctx)); }
  [[nodiscard]] bool try_lock_shared() noexcept { return take_shared(); }
  template <detail::duration_like D>
  [[nodiscard]] bool try_lock_shared_for(const D& timeout) {
    return lock_shared_within(detail::within(timeout));
  }
  template <detail::time_point_like Time>
  [[nodiscard]] bool try_lock_shared_until(const Time& t) {
    return lock_shared_within(detail::until(t));
  }
  // Throws std::logic_error if no reader holds it.
  void unlock_shared() {
    std::uint32_t seen = word::one_reader;
    // Pairs with the acquire in take().
    if (!core_.word.compare_exchange_strong(seen, 0, std::memory_order_release,
                                            std::memory_order_relaxed)) {
      detail::unlock_shared_slowly(core_);
    }
  }

 private:
  using word = detail::shared_mutex_core;

  bool lock_within(const detail::wait_limit& limit) {
    return take() || detail::lock_slowly(core_, limit);
  }
  bool lock_shared_within(const detail::wait_limit& limit) {
    return take_shared() || detail::lock_shared_slowly(core_, limit);
  }

  bool take() noexcept {
    std::uint32_t seen = 0;
    // Pairs with the releases in unlock() and unlock_shared().
    return core_.word.compare_exchange_strong(seen, word::exclusive, std::memory_order_acquire,
                                              std::memory_order_relaxed);
  }
  bool take_shared() noexcept {
    // ordering: the load only proposes.
    std::uint32_t seen = core_.word.load(std::memory_order_relaxed);
    while ((seen & (word::exclusive | word::waiting)) == 0) {
      // Pairs with the release in unlock().
      if (core_.word.compare_exchange_weak(seen, seen + word::one_reader,
                                           std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  detail::shared_mutex_core core_;
};

// Waits until another says that something has changed. Takes any lock: a
// std::unique_lock or std::shared_lock of the mutexes above, or a mutex itself.
// Its unlock() must not wait, its lock() must not throw.
//
// notify_one() lets one go on, the one who has waited longest; notify_all() all
// that wait at that moment, and whoever comes later waits for the next. There
// are no spurious wake-ups; but the condition may have changed again before the
// lock is taken back: use the forms with a predicate.
// Behaviour: Go's sync.Cond, with timeouts.
class condition_variable {
 public:
  constexpr condition_variable() noexcept = default;
  condition_variable(const condition_variable&) = delete;
  condition_variable& operator=(const condition_variable&) = delete;

  // Need not hold the lock.
  void notify_one() noexcept { detail::notify_one(core_); }
  void notify_all() noexcept { detail::notify_all(core_); }

  // Unlocks, waits, and locks again in every case. Throws `stopped`, and what
  // lock.unlock() throws if it is not locked.
  template <class Lock>
  void wait(Lock& lock) {
    wait_within(lock, detail::no_limit);
  }
  template <class Lock, class Predicate>
    requires std::is_invocable_v<Predicate&>
  void wait(Lock& lock, Predicate holds) {
    wait_while_not(lock, detail::no_limit, holds);
  }

  // At most until ctx is done: then throws `cancelled`, with the lock held.
  template <class Lock>
  void wait(Lock& lock, const context& ctx) {
    wait_within(lock, detail::under(ctx));
  }
  template <class Lock, class Predicate>
  void wait(Lock& lock, const context& ctx, Predicate holds) {
    wait_while_not(lock, detail::under(ctx), holds);
  }

  // True if notified, false if the timeout passed first; zero or negative: the
  // lock is let go and taken back.
  template <class Lock, detail::duration_like D>
  bool wait_for(Lock& lock, const D& timeout) {
    return wait_within(lock, detail::within(timeout));
  }
  template <class Lock, detail::time_point_like Time>
  bool wait_until(Lock& lock, const Time& t) {
    return wait_within(lock, detail::until(t));
  }
  // What the predicate says at the end.
  template <class Lock, detail::duration_like D, class Predicate>
  bool wait_for(Lock& lock, const D& timeout, Predicate holds) {
    return wait_while_not(lock, detail::within(timeout), holds);
  }
  template <class Lock, detail::time_point_like Time, class Predicate>
  bool wait_until(Lock& lock, const Time& t, Predicate holds) {
    return wait_while_not(lock, detail::until(t), holds);
  }

 private:
  template <class Lock>
  bool wait_within(Lock& lock, const detail::wait_limit& limit) {
    return detail::wait(core_,
                        {&lock, [](void* l) { static_cast<Lock*>(l)->unlock(); },
                         [](void* l) noexcept { static_cast<Lock*>(l)->lock(); }},
                        limit);
  }

  template <class Lock, class Predicate>
  bool wait_while_not(Lock& lock, const detail::wait_limit& limit, Predicate& holds) {
    // Kept: whoever has the lock between two waits may change the caller's context.
    const detail::kept_limit kept(limit.absolute());
    while (!holds()) {
      if (!wait_within(lock, kept.limit)) return holds();
    }
    return true;
  }

  detail::condition_core core_;
};

namespace detail {

// One that counts, until it dies.
class counted {
 public:
  explicit counted(counter_core& added_to) noexcept : core_(&added_to) {}
  counted(counted&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
  counted& operator=(counted&&) = delete;
  ~counted() {
    if (core_ != nullptr) add_to(*core_, -1);
  }

 private:
  counter_core* core_;
};

// What a fiber that counts runs.
template <class F>
class counted_body {
 public:
  template <class G>
  counted_body(counted&& one, G&& f) : one_(std::move(one)), f_(std::forward<G>(f)) {}

  void operator()() { static_cast<void>(f_()); }

 private:
  counted one_;  // the last to die
  F f_;
};

}  // namespace detail

// Waits until a number of things are done. It may be used again after a wait,
// and any number may wait. What was written before a done() is visible after the
// wait() that it ends. Behaviour: Go's sync.WaitGroup.
//
//   vigil::wait_group all;
//   for (auto& part : parts) all.go([&part] { work_on(part); });
//   all.wait();
class wait_group {
 public:
  constexpr wait_group() noexcept = default;
  wait_group(const wait_group&) = delete;
  wait_group& operator=(const wait_group&) = delete;

  // n more to wait for; negative: that many are done. Throws std::logic_error,
  // with nothing changed, if fewer than none would be left or the count would
  // overflow.
  void add(std::int64_t n = 1) { detail::add_to(core_, n); }
  void done() { detail::add_to(core_, -1); }
  std::int64_t count() const noexcept { return detail::count_of(core_); }
  // Whether the count is zero now.
  bool try_wait() const noexcept { return count() == 0; }

  // Until the count is zero; at once if it is. One who waits goes on once it has
  // been zero, whatever is added afterwards.
  void wait() { detail::wait(core_, false, detail::no_limit); }
  // At most until ctx is done: then throws `cancelled`.
  void wait(const context& ctx) { detail::wait(core_, false, detail::under(ctx)); }
  // False if the timeout passed first.
  template <detail::duration_like D>
  bool wait_for(const D& timeout) {
    return detail::wait(core_, false, detail::within(timeout));
  }
  template <detail::time_point_like Time>
  bool wait_until(const Time& t) {
    return detail::wait(core_, false, detail::until(t));
  }

  // Runs f on a fiber of its own that counts until f has returned or thrown, and
  // its captures are gone. What f throws goes to options::on_unhandled, as for
  // vigil::go; that function's errors, with nothing counted.
  template <class F>
  void go(F&& f, const site& from = site::current()) {
    detail::refuse_empty("vigil::wait_group::go", f);
    add();
    detail::counted one(core_);
    detail::start_by({.name = "vigil::wait_group::go"}, {}, true, from,
                     detail::counted_body<std::decay_t<F>>(std::move(one), std::forward<F>(f)));
  }

 private:
  detail::counter_core core_;
};

// Counts down to zero once; whoever waits goes on then. Behaviour: std::latch,
// with timeouts.
class latch {
 public:
  // Throws std::invalid_argument for a negative count.
  constexpr explicit latch(std::int64_t count) {
    if (count < 0) detail::check_latch(count);
    core_.count = count;
  }
  latch(const latch&) = delete;
  latch& operator=(const latch&) = delete;

  // Throws std::logic_error, with nothing changed, if n is negative or more than
  // is left.
  void count_down(std::int64_t n = 1) { detail::count_down(core_, n); }
  // Whether it has come to zero.
  bool try_wait() const noexcept { return count() == 0; }
  std::int64_t count() const noexcept { return detail::count_of(core_); }

  void wait() { detail::wait(core_, true, detail::no_limit); }
  // At most until ctx is done: then throws `cancelled`.
  void wait(const context& ctx) { detail::wait(core_, true, detail::under(ctx)); }
  template <detail::duration_like D>
  bool wait_for(const D& timeout) {
    return detail::wait(core_, true, detail::within(timeout));
  }
  template <detail::time_point_like Time>
  bool wait_until(const Time& t) {
    return detail::wait(core_, true, detail::until(t));
  }
  void arrive_and_wait(std::int64_t n = 1) { arrive_within(n, detail::no_limit); }
  // Counts as an arrival even if it throws `cancelled`.
  void arrive_and_wait(std::int64_t n, const context& ctx) {
    arrive_within(n, detail::under(ctx));
  }
  void arrive_and_wait(const context& ctx) { arrive_and_wait(1, ctx); }

 private:
  void arrive_within(std::int64_t n, const detail::wait_limit& limit) {
    // Kept: others may change the caller's context once it has arrived.
    const detail::kept_limit kept(limit);
    count_down(n);
    detail::wait(core_, true, kept.limit);
  }

  detail::counter_core core_;
};

// Says to scoped_permit that its permits are acquired already.
struct adopt_permit_t {
  explicit adopt_permit_t() = default;
};
inline constexpr adopt_permit_t adopt_permit{};

// A number of permits. First come, first served: a request for many is not
// overtaken by those for few. Behaviour: Go's semaphore.Weighted; the names are
// those of std::counting_semaphore, each call with a number of permits.
//
// Each call throws std::invalid_argument for a negative number; 0 permits are had
// at once. A request that is larger than all permits there ever are waits until
// its deadline, and those behind it with it.
class semaphore {
 public:
  constexpr explicit semaphore(std::int64_t permits) {
    if (permits < 0) detail::check_semaphore(permits);
    core_.count = permits;
  }
  semaphore(const semaphore&) = delete;
  semaphore& operator=(const semaphore&) = delete;

  void acquire(std::int64_t n = 1) { detail::acquire_permits(core_, n, detail::no_limit); }
  // At most until ctx is done: then throws `cancelled`, with none taken.
  void acquire(std::int64_t n, const context& ctx) {
    detail::acquire_permits(core_, n, detail::under(ctx));
  }
  void acquire(const context& ctx) { acquire(1, ctx); }
  // Only if they are free and nobody waits.
  [[nodiscard]] bool try_acquire(std::int64_t n = 1) {
    return detail::try_acquire_permits(core_, n);
  }
  // False, with none taken, if the timeout passed first.
  template <detail::duration_like D>
  [[nodiscard]] bool try_acquire_for(const D& timeout, std::int64_t n = 1) {
    return detail::acquire_permits(core_, n, detail::within(timeout));
  }
  template <detail::time_point_like Time>
  [[nodiscard]] bool try_acquire_until(const Time& t, std::int64_t n = 1) {
    return detail::acquire_permits(core_, n, detail::until(t));
  }

  // Any fiber or thread may release permits, including ones never acquired.
  // Throws std::overflow_error, with nothing changed, beyond 2^63 - 1.
  void release(std::int64_t n = 1) { detail::release_permits(core_, n); }

  // How many are free; others may take them at any moment.
  std::int64_t available() const noexcept { return detail::count_of(core_); }

 private:
  detail::semaphore_core core_;
};

// Permits that are given back at the end of the scope, however that is left. Moved,
// also into a fiber's function, it gives them back at the end of where it is then.
//
//   const vigil::scoped_permit one(connections);  // waits for it
//
//   if (!connections.try_acquire()) return;
//   const vigil::scoped_permit one(connections, vigil::adopt_permit);
class [[nodiscard]] scoped_permit {
 public:
  // Acquires n; throws what semaphore::acquire throws.
  explicit scoped_permit(semaphore& of, std::int64_t n = 1) : of_(&of), n_(n) { of.acquire(n); }
  // At most until ctx is done: then throws `cancelled`, with none taken.
  scoped_permit(semaphore& of, std::int64_t n, const context& ctx) : of_(&of), n_(n) {
    of.acquire(n, ctx);
  }
  scoped_permit(semaphore& of, const context& ctx) : scoped_permit(of, 1, ctx) {}
  // For n that are acquired already; throws std::invalid_argument if n is negative.
  scoped_permit(semaphore& of, adopt_permit_t, std::int64_t n = 1) : of_(&of), n_(n) {
    detail::check_permits(n, "scoped_permit");
  }
  scoped_permit(scoped_permit&& other) noexcept
      : of_(std::exchange(other.of_, nullptr)), n_(other.n_) {}
  scoped_permit& operator=(scoped_permit&&) = delete;
  ~scoped_permit() {
    if (of_ != nullptr) of_->release(n_);
  }

 private:
  semaphore* of_;
  std::int64_t n_;
};

// Runs a function once, whoever comes first; the others wait until it has
// returned. If it throws (a stop included), the exception goes to who ran it,
// and the next one runs its own: the rule of std::call_once. Not Go's, whose
// Once counts a panic as done.
//
//   vigil::once opened;
//   opened.call([&] { connection = open(); });
class once {
 public:
  constexpr once() noexcept = default;
  once(const once&) = delete;
  once& operator=(const once&) = delete;

  // Throws what f throws, `stopped` while it waits for another, and
  // std::logic_error if f calls it (directly) again. Cost afterwards: one load.
  template <class F, class... Args>
    requires std::is_invocable_v<F, Args...>
  void call(F&& f, Args&&... args) {
    call_within(detail::no_limit, std::forward<F>(f), std::forward<Args>(args)...);
  }
  // The same, but waits for another at most until ctx is done: then throws
  // `cancelled`. f is not bounded by ctx, unless it hands ctx on itself.
  template <class F, class... Args>
  void call(const context& ctx, F&& f, Args&&... args) {
    call_within(detail::under(ctx), std::forward<F>(f), std::forward<Args>(args)...);
  }

  // What the function wrote is visible if true.
  bool is_done() const noexcept {
    // Pairs with the release in end_once().
    return core_.state.load(std::memory_order_acquire) == detail::once_core::done;
  }

 private:
  template <class F, class... Args>
  void call_within(const detail::wait_limit& limit, F&& f, Args&&... args) {
    if (is_done() || !detail::begin_once(core_, limit)) return;
    struct run_of_mine {
      detail::once_core& core;
      bool done = false;
      ~run_of_mine() { detail::end_once(core, done); }
    } mine{core_};
    static_cast<void>(std::forward<F>(f)(std::forward<Args>(args)...));
    mine.done = true;
  }

  detail::once_core core_;
};

}  // namespace VIGIL_ABI
}  // namespace vigil
