#include "lock_check/next_calls.hpp"

#include "core/base/atomic.hpp"

#include <cstring>

#include <dlfcn.h>

namespace VIGIL_DETAIL {
namespace {

constinit next_calls found{};
constinit atomic<bool> is_found{false};
constinit thread_local bool is_finding = false;

// A sanitizer's function is called by the name that it has for wrappers like these. In
// clang's builds it is in the program itself, so that "the next one" would miss it.
void* find(const char* name, const char* version) noexcept {
  constexpr char prefix[] = "__interceptor_";
  char of_sanitizer[64];
  std::memcpy(of_sanitizer, prefix, sizeof prefix - 1);
  std::strncpy(of_sanitizer + sizeof prefix - 1, name, sizeof of_sanitizer - sizeof prefix);
  of_sanitizer[sizeof of_sanitizer - 1] = '\0';
  if (void* const f = ::dlsym(RTLD_DEFAULT, of_sanitizer)) return f;
  if (version != nullptr) {
    if (void* const f = ::dlvsym(RTLD_NEXT, name, version)) return f;
  }
  return ::dlsym(RTLD_NEXT, name);
}

template <class F>
void find(F& into, const char* name, const char* version = nullptr) noexcept {
  into = reinterpret_cast<F>(find(name, version));
}

// On x86-64 glibc has an older kind of condition variable under the same names.
constexpr const char* new_conditions = "GLIBC_2.3.2";

void find_all() noexcept {
  next_calls n{};
  find(n.mutex_lock, "pthread_mutex_lock");
  find(n.mutex_trylock, "pthread_mutex_trylock");
  find(n.mutex_timedlock, "pthread_mutex_timedlock");
  find(n.mutex_clocklock, "pthread_mutex_clocklock");
  find(n.mutex_unlock, "pthread_mutex_unlock");
  find(n.cond_wait, "pthread_cond_wait", new_conditions);
  find(n.cond_timedwait, "pthread_cond_timedwait", new_conditions);
  find(n.cond_clockwait, "pthread_cond_clockwait");
  find(n.rwlock_rdlock, "pthread_rwlock_rdlock");
  find(n.rwlock_tryrdlock, "pthread_rwlock_tryrdlock");
  find(n.rwlock_timedrdlock, "pthread_rwlock_timedrdlock");
  find(n.rwlock_clockrdlock, "pthread_rwlock_clockrdlock");
  find(n.rwlock_wrlock, "pthread_rwlock_wrlock");
  find(n.rwlock_trywrlock, "pthread_rwlock_trywrlock");
  find(n.rwlock_timedwrlock, "pthread_rwlock_timedwrlock");
  find(n.rwlock_clockwrlock, "pthread_rwlock_clockwrlock");
  find(n.rwlock_unlock, "pthread_rwlock_unlock");
  found = n;
  ::dlerror();  // what is missing is no error of the program's
}

}  // namespace

const next_calls& next() noexcept {
  // Pairs with the release below.
  if (!is_found.load(order::acquire)) [[unlikely]] {
    if (is_finding) return found;
    is_finding = true;
    find_all();
    is_finding = false;
    is_found.store(true, order::release);  // Pairs with the acquire above.
  }
  return found;
}

}  // namespace VIGIL_DETAIL
