// The atomics of every shared word in the library: std::atomic, under a name
// of our own. The model tests need no other: they build this code so that the
// compiler hands each access to their explorer (tests/model).
#pragma once

#include <vigil/detail/config.hpp>

#include <atomic>

namespace VIGIL_DETAIL {

template <class T>
using atomic = std::atomic<T>;

// For the second argument of an atomic's members.
namespace order {

inline constexpr auto relaxed = std::memory_order_relaxed;  // ordering: each use says why
inline constexpr auto acquire = std::memory_order_acquire;  // ordering: each use says why
inline constexpr auto release = std::memory_order_release;  // ordering: each use says why
inline constexpr auto acq_rel = std::memory_order_acq_rel;  // ordering: each use says why

}  // namespace order

// Tells the processor `times` times that this is a spin loop, which takes some
// nanoseconds each time. The model tests' explorer has a version of its own: another
// thread must move first.
#ifdef VIGIL_MODEL
void cpu_pause(unsigned times = 1) noexcept;
#else
inline void cpu_pause(unsigned times = 1) noexcept {
  for (; times != 0; --times) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
}
#endif

// For the words of a seqlock over plain memory, which no operation on an atomic orders:
// writes that follow come after the last store, and reads that came before, before the
// next load. x86 keeps that order itself, so the compiler alone has to be told.
inline void order_plain_memory() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  std::atomic_signal_fence(std::memory_order_acq_rel);  // ordering: of plain memory
#else
  std::atomic_thread_fence(std::memory_order_acq_rel);  // ordering: of plain memory
#endif
}

inline constexpr unsigned long cache_line = 64;

// A counter with one writer and any number of readers; needs no locked instruction.
class own_counter {
 public:
  // Caller: the one writer.
  void add(unsigned long n = 1) noexcept {
    // ordering: a statistic; or the reader has seen the writer end.
    value_.store(value_.load(order::relaxed) + n, order::relaxed);
  }

  void clear() noexcept { value_.store(0, order::relaxed); }  // ordering: as above

  // ordering: as above.
  unsigned long get() const noexcept { return value_.load(order::relaxed); }

 private:
  atomic<unsigned long> value_{0};
};

}  // namespace VIGIL_DETAIL
