// next_calls: the functions that the program would call if this library did not stand
// before them: the C library's, or a sanitizer's, which calls the C library's.
#pragma once

#include <vigil/detail/config.hpp>

#include <ctime>

#include <pthread.h>

namespace VIGIL_DETAIL {

struct next_calls {
  int (*mutex_lock)(pthread_mutex_t*);
  int (*mutex_trylock)(pthread_mutex_t*);
  int (*mutex_timedlock)(pthread_mutex_t*, const timespec*);
  int (*mutex_clocklock)(pthread_mutex_t*, clockid_t, const timespec*);
  int (*mutex_unlock)(pthread_mutex_t*);

  int (*cond_wait)(pthread_cond_t*, pthread_mutex_t*);
  int (*cond_timedwait)(pthread_cond_t*, pthread_mutex_t*, const timespec*);
  int (*cond_clockwait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);

  int (*rwlock_rdlock)(pthread_rwlock_t*);
  int (*rwlock_tryrdlock)(pthread_rwlock_t*);
  int (*rwlock_timedrdlock)(pthread_rwlock_t*, const timespec*);
  int (*rwlock_clockrdlock)(pthread_rwlock_t*, clockid_t, const timespec*);
  int (*rwlock_wrlock)(pthread_rwlock_t*);
  int (*rwlock_trywrlock)(pthread_rwlock_t*);
  int (*rwlock_timedwrlock)(pthread_rwlock_t*, const timespec*);
  int (*rwlock_clockwrlock)(pthread_rwlock_t*, clockid_t, const timespec*);
  int (*rwlock_unlock)(pthread_rwlock_t*);
};

// Finds them in the first call, which comes while the process has one thread.
const next_calls& next() noexcept;

// Inside the search itself (the loader may use a lock of a replaced malloc) nothing is
// called: there is one thread, so no lock needs to be taken.
template <class... A>
int call(int (*f)(A...), A... arguments) noexcept(false) {
  return f != nullptr ? f(arguments...) : 0;
}

}  // namespace VIGIL_DETAIL
