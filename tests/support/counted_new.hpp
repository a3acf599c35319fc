// Counts every operator new of the program that includes it, in one file. Not for use
// under a sanitizer, which has its own operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

namespace vigil::testing_support {

inline std::atomic<std::size_t> allocated{0};
inline thread_local std::size_t before_call = 0;  // 0: no allocation calls anything
inline thread_local std::function<void()> called;

inline void* counted(void* p) {
  ++allocated;
  if (before_call != 0 && --before_call == 0) std::exchange(called, nullptr)();
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

// Counts the allocations of f's second call; the first call warms up.
template <class F>
std::size_t allocations_of(F f) {
  f();
  const std::size_t before = allocated.load();
  f();
  return allocated.load() - before;
}

// Calls f in the n-th allocation of this thread from now. Caller: does not park before
// that.
template <class F>
void at_allocation(std::size_t n, F f) {
  called = std::move(f);
  before_call = n;
}

}  // namespace vigil::testing_support

void* operator new(std::size_t size) {
  return vigil::testing_support::counted(std::malloc(size != 0 ? size : 1));
}

void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto a = static_cast<std::size_t>(alignment);
  return vigil::testing_support::counted(std::aligned_alloc(a, (size + a - 1) / a * a));
}

void operator delete(void* p) noexcept {
  std::free(p);
}

void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}

void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
