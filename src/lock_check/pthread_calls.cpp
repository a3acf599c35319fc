// The functions of pthread.h that lock and unlock, in place of the C library's. They call
// those, and note what fibers hold.
#include "lock_check/lock_check.hpp"
#include "lock_check/next_calls.hpp"

#include <cerrno>

#include <pthread.h>

void vigil::detail::put_in_place() noexcept {}

namespace {

using vigil::detail::call;
using vigil::detail::lock_kind;
using vigil::detail::next;
using vigil::detail::note_locked;
using vigil::detail::released_lock;

int locked(int result, const void* lock, lock_kind kind, void* return_address) noexcept {
  // The holder of a robust mutex that has died leaves it to this caller, locked.
  if (result == 0 || result == EOWNERDEAD) note_locked(lock, kind, return_address);
  return result;
}

// Noted as unlocked before it is: right after, another fiber may have it.
template <class Unlock>
int unlock(const void* lock, lock_kind kind, Unlock do_unlock) noexcept {
  released_lock released(lock, kind);
  const int result = do_unlock();
  if (result != 0) released.put_back();
  return result;
}

// A wait for a condition ends with the mutex locked, even if it is cancelled.
template <class Wait>
int released_during(const void* lock, Wait do_wait) {
  struct locked_again {
    ~locked_again() { released.put_back(); }

    released_lock released;
  } const at_the_end{released_lock(lock, lock_kind::mutex)};

  return do_wait();
}

}  // namespace

#define VIGIL_IN_PLACE extern "C" [[gnu::visibility("default")]]
#define VIGIL_LOCKED(lock, kind, function, ...) \
  locked(call(next().function, __VA_ARGS__), lock, lock_kind::kind, __builtin_return_address(0))

VIGIL_IN_PLACE int pthread_mutex_lock(pthread_mutex_t* m) noexcept {
  return VIGIL_LOCKED(m, mutex, mutex_lock, m);
}

VIGIL_IN_PLACE int pthread_mutex_trylock(pthread_mutex_t* m) noexcept {
  return VIGIL_LOCKED(m, mutex, mutex_trylock, m);
}

VIGIL_IN_PLACE int pthread_mutex_timedlock(pthread_mutex_t* m, const timespec* until) noexcept {
  return VIGIL_LOCKED(m, mutex, mutex_timedlock, m, until);
}

VIGIL_IN_PLACE int pthread_mutex_clocklock(pthread_mutex_t* m,
                                           clockid_t clock,
                                           const timespec* until) noexcept {
  return VIGIL_LOCKED(m, mutex, mutex_clocklock, m, clock, until);
}

VIGIL_IN_PLACE int pthread_mutex_unlock(pthread_mutex_t* m) noexcept {
  return unlock(m, lock_kind::mutex, [m] { return call(next().mutex_unlock, m); });
}

VIGIL_IN_PLACE int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m) {
  return released_during(m, [=] { return call(next().cond_wait, c, m); });
}

VIGIL_IN_PLACE int pthread_cond_timedwait(pthread_cond_t* c,
                                          pthread_mutex_t* m,
                                          const timespec* until) {
  return released_during(m, [=] { return call(next().cond_timedwait, c, m, until); });
}

VIGIL_IN_PLACE int pthread_cond_clockwait(pthread_cond_t* c,
                                          pthread_mutex_t* m,
                                          clockid_t clock,
                                          const timespec* until) {
  return released_during(m, [=] { return call(next().cond_clockwait, c, m, clock, until); });
}

VIGIL_IN_PLACE int pthread_rwlock_rdlock(pthread_rwlock_t* l) noexcept {
  return VIGIL_LOCKED(l, shared_mutex, rwlock_rdlock, l);
}

VIGIL_IN_PLACE int pthread_rwlock_tryrdlock(pthread_rwlock_t* l) noexcept {
  return VIGIL_LOCKED(l, shared_mutex, rwlock_tryrdlock, l);
}

VIGIL_IN_PLACE int pthread_rwlock_timedrdlock(pthread_rwlock_t* l, const timespec* until) noexcept {
  return VIGIL_LOCKED(l, shared_mutex, rwlock_timedrdlock, l, until);
}

VIGIL_IN_PLACE int pthread_rwlock_clockrdlock(pthread_rwlock_t* l,
                                              clockid_t clock,
                                              const timespec* until) noexcept {
  return VIGIL_LOCKED(l, shared_mutex, rwlock_clockrdlock, l, clock, until);
}

VIGIL_IN_PLACE int pthread_rwlock_wrlock(pthread_rwlock_t* l) noexcept {
  return VIGIL_LOCKED(l, shared_mutex, rwlock_wrlock, l);
}

VIGIL_IN_PLACE int pthread_rwlock_trywrlock(pthread_rwlock_t* l) noexcept {
  return VIGIL_LOCKED(l, shared_mutex, rwlock_trywrlock, l);
}

VIGIL_IN_PLACE int pthread_rwlock_timedwrlock(pthread_rwlock_t* l, const timespec* until) noexcept {
  return VIGIL_LOCKED(l, shared_mutex, rwlock_timedwrlock, l, until);
}

VIGIL_IN_PLACE int pthread_rwlock_clockwrlock(pthread_rwlock_t* l,
                                              clockid_t clock,
                                              const timespec* until) noexcept {
  return VIGIL_LOCKED(l, shared_mutex, rwlock_clockwrlock, l, clock, until);
}

VIGIL_IN_PLACE int pthread_rwlock_unlock(pthread_rwlock_t* l) noexcept {
  return unlock(l, lock_kind::shared_mutex, [l] { return call(next().rwlock_unlock, l); });
}
