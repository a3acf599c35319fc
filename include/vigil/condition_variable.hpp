// condition_variable: waits for a change that is made under a lock.
//
//   std::unique_lock lock(m);  // of a vigil::mutex
//   changed.wait(lock, [&] { return ready; });
//
// sync.hpp has the rules for all locks and counters, and for how their waits end.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <type_traits>

namespace VIGIL_PUBLIC {

// condition_variable: waits for a notification. Takes any lock: a std::unique_lock or
// std::shared_lock of vigil's mutexes, or a mutex itself. The lock's unlock() must not
// wait, and its lock() must not throw.
//
// notify_one() readies the longest waiter, notify_all() all that wait at that moment; a
// later one waits for the next notification. There are no spurious wake-ups, but the
// condition may have changed again before the lock is retaken: use the forms with a
// predicate.
//
// Throws from waits `stopped`, wrong_place, `cancelled` with a context and std::bad_alloc
// with a time, with the lock held; and what the predicate and lock.unlock() throw. Thread
// safety: fibers of any runtime and plain threads. Lifetime: it may be destroyed when
// nothing waits in it. Shutdown: ends a wait by `stopped`, but not the relocking. Cost: a
// short lock of its own for each call, and no allocation. Behaviour: Go's sync.Cond, with
// timeouts.
class condition_variable {
 public:
  constexpr condition_variable(const site& from = site::current()) noexcept : core_(from) {}

  condition_variable(const condition_variable&) = delete;
  condition_variable& operator=(const condition_variable&) = delete;

  // The caller need not hold the lock.
  void notify_one() noexcept { detail::notify_one(core_); }

  void notify_all() noexcept { detail::notify_all(core_); }

  // Unlocks, waits, and locks again however the wait ends. Throws `stopped`, and whatever
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

  // The same; throws `cancelled`, with the lock held, when ctx is done.
  template <class Lock>
  void wait(Lock& lock, const context& ctx) {
    wait_within(lock, detail::cancelled_by(ctx));
  }

  template <class Lock, class Predicate>
  void wait(Lock& lock, const context& ctx, Predicate holds) {
    wait_while_not(lock, detail::cancelled_by(ctx), holds);
  }

  // Returns true if notified, false if the timeout passed first. If it is zero or
  // negative, the lock is only released and retaken.
  template <class Lock, detail::duration_argument D>
  bool wait_for(Lock& lock, const D& timeout) {
    return wait_within(lock, detail::within(timeout));
  }

  template <class Lock, detail::time_point_like Time>
  bool wait_until(Lock& lock, const Time& t) {
    return wait_within(lock, detail::until(t));
  }

  // Returns the predicate's last answer.
  template <class Lock, detail::duration_argument D, class Predicate>
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
                        {&lock,
                         [](void* l) { static_cast<Lock*>(l)->unlock(); },
                         [](void* l) noexcept { static_cast<Lock*>(l)->lock(); }},
                        limit);
  }

  template <class Lock, class Predicate>
  bool wait_while_not(Lock& lock, const detail::wait_limit& limit, Predicate& holds) {
    // Kept, because a holder of the lock between two waits may change the caller's
    // context.
    const detail::kept_limit kept(limit.absolute());
    while (!holds()) {
      if (!wait_within(lock, kept.limit)) return static_cast<bool>(holds());
    }
    return true;
  }

  detail::condition_core core_;
};

}  // namespace VIGIL_PUBLIC
