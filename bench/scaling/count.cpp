// The counter behind scaling_work. The compiler's thread instrumentation passes it each
// access to memory, as in the model tests (tests/model/meson.build). It does the access,
// and keeps for each cache line which threads have a copy, as caches of endless size
// would. A touch is a *transfer* if the thread must fetch the line first: a read without
// a copy, or a write while another thread has one.
//
// Not seen: the C library, except memcpy, memmove and mutexes; the kernel; and plain
// accesses within a page above the stack pointer, because a stack goes with its fiber.
#include "scaling/count.hpp"

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <span>
#include <vector>

#include <pthread.h>
#include <sched.h>

extern "C" char __executable_start;  // NOLINT: the linker's name

namespace scaling {

bool (*on_timer_fiber)() = [] { return false; };
unsigned yield_after = 0;

namespace {

enum kind : unsigned { read, write, load, store, modify, kinds };

constexpr unsigned max_threads = 128;
constexpr std::uintptr_t line_size = 64;
constexpr std::uintptr_t page = 4096;

struct site {
  std::uint32_t address = 0;  // behind the call, from the start of the program
  std::uint32_t touches = 0;
  std::uint32_t transfers = 0;
  kind how = read;
};

// One cache line. Its record is shared by the threads that share the line, so counting
// adds no other line to what they share.
struct alignas(line_size) line {
  std::atomic<bool> taken{false};  // guards the rest
  std::uintptr_t number = 0;       // address / line_size
  std::bitset<max_threads> copies;
  std::uint64_t touches[kinds] = {};
  std::uint64_t transfers = 0;
  std::uint64_t on_timer_fiber = 0;  // of the transfers
  site sites[24];                    // the commonest; a new one takes the rarest's place
};

// From the number of a line to its record.
struct entry {
  std::atomic<std::uintptr_t> number{0};  // 0: free
  std::atomic<line*> record{nullptr};
};

constexpr std::size_t table_size = std::size_t{1} << 20;
constexpr std::size_t max_lines = table_size / 2;
constinit std::atomic<std::size_t> records_used{0};

// Made at the first touch, which may come before main(). Zeros are an entry's initial
// values; a record is constructed when it is used.
entry* table() noexcept {
  static entry* const all = static_cast<entry*>(std::calloc(table_size, sizeof(entry)));
  return all;
}

line* records() noexcept {
  static line* const all =
      static_cast<line*>(std::aligned_alloc(line_size, max_lines * sizeof(line)));
  return all;
}

constinit std::atomic<bool> counts{false};
constinit std::atomic<unsigned> threads{0};

constinit thread_local unsigned this_thread = max_threads;
constinit thread_local bool is_inside = false;
constinit thread_local std::uint32_t dice = 0;
constinit thread_local std::uint32_t until_yield = 1;

line* find(std::uintptr_t number) noexcept {
  std::size_t at = (number * 0x9e37'79b9'7f4a'7c15) >> 44;
  for (;; at = (at + 1) % table_size) {
    entry& e = table()[at];
    std::uintptr_t seen = e.number.load();
    if (seen == 0 && e.number.compare_exchange_strong(seen, number)) {
      const std::size_t i = records_used++;
      if (i >= max_lines) std::abort();
      line* const made = new (&records()[i]) line;
      made->number = number;
      e.record = made;
    } else if (seen != number) {
      continue;
    }
    line* record = nullptr;
    while ((record = e.record.load()) == nullptr)
      ::sched_yield();
    return record;
  }
}

site& find_site(line& l, kind how, std::uint32_t address) noexcept {
  site* rarest = &l.sites[0];
  for (site& s : l.sites) {
    if (s.address == address) return s;
    if (s.touches < rarest->touches) rarest = &s;
  }
  *rarest = {.address = address, .how = how};
  return *rarest;
}

void touch_line(std::uintptr_t number, kind how, std::uint32_t from) noexcept {
  line* const l = find(number);
  while (l->taken.exchange(true)) {
    ::sched_yield();
  }
  const bool is_read = how == read || how == load;
  const bool has_copy = l->copies.test(this_thread);
  const bool is_transfer =
      is_read ? !has_copy && l->copies.any() : l->copies.count() > (has_copy ? 1u : 0u);
  if (!is_read) l->copies.reset();
  l->copies.set(this_thread);
  if (counts.load()) {
    ++l->touches[how];
    site& s = find_site(*l, how, from);
    ++s.touches;
    if (is_transfer) {
      ++l->transfers;
      ++s.transfers;
      if (on_timer_fiber()) ++l->on_timer_fiber;
    }
  }
  l->taken.store(false);
}

void touch(const volatile void* at, std::size_t size, kind how, void* from) noexcept {
  if (is_inside || size == 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  const bool is_plain = how == read || how == write;
  if (is_plain && begin - reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) < page)
    return;
  is_inside = true;
  if (this_thread == max_threads) this_thread = std::min(threads++, max_threads - 1);
  const auto code = static_cast<char*>(from) - &__executable_start;
  for (auto n = begin / line_size; n <= (begin + size - 1) / line_size; ++n)
    touch_line(n, how, static_cast<std::uint32_t>(code));
  is_inside = false;
}

// Called before a modification and after a store, which is where locks are free.
void let_others_run() noexcept {
  if (yield_after == 0 || is_inside || --until_yield != 0) return;
  dice = dice * 1'664'525 + 1'013'904'223 + this_thread;
  until_yield = 1 + (dice >> 8) % (2 * yield_after);
  ::sched_yield();
}

std::uint64_t touches_of(const line& l) noexcept {
  std::uint64_t n = 0;
  for (const std::uint64_t one : l.touches)
    n += one;
  return n;
}

}  // namespace

void begin() {
  counts = true;
}

void end() {
  counts = false;
}

void print(std::size_t operations) {
  std::vector<const line*> lines;
  std::map<std::uint32_t, site> sites;
  std::uint64_t touches = 0;
  std::uint64_t transfers = 0;
  std::uint64_t fired = 0;
  for (const line& l : std::span(records(), records_used.load())) {
    touches += touches_of(l);
    transfers += l.transfers;
    fired += l.on_timer_fiber;
    if (l.transfers != 0) lines.push_back(&l);
    for (const site& s : l.sites) {
      site& sum = sites[s.address];
      sum.how = s.how;
      sum.touches += s.touches;
      sum.transfers += s.transfers;
    }
  }
  std::ranges::sort(lines, [](auto* a, auto* b) { return a->transfers > b->transfers; });
  std::printf("all %zu %lu %lu %lu %zu\n", operations, touches, transfers, fired, lines.size());
  for (const auto& [address, s] : sites) {
    if (address != 0) std::printf("site %x %u %u %u\n", address, s.how, s.touches, s.transfers);
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(lines.size(), 4000); ++i) {
    const line& l = *lines[i];
    std::printf("line %lx %lu %lu", l.number, l.transfers, l.on_timer_fiber);
    for (const std::uint64_t n : l.touches)
      std::printf(" %lu", n);
    for (const site& s : l.sites) {
      if (s.address != 0) std::printf(" %x:%u:%u", s.address, s.touches, s.transfers);
    }
    std::printf("\n");
  }
}

}  // namespace scaling

// The names and types are the compiler's.
#define FROM __builtin_return_address(0)

extern "C" {

void __tsan_init() {}

void __tsan_func_entry(void*) {}

void __tsan_func_exit() {}

void __tsan_vptr_update(void** address, void*) {
  scaling::touch(address, sizeof(void*), scaling::write, FROM);
}

void __tsan_vptr_read(void** address) {
  scaling::touch(address, sizeof(void*), scaling::read, FROM);
}

void __tsan_read_range(void* address, unsigned long size) {
  scaling::touch(address, size, scaling::read, FROM);
}

void __tsan_write_range(void* address, unsigned long size) {
  scaling::touch(address, size, scaling::write, FROM);
}

void __tsan_atomic_thread_fence(int) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // ordering: as strong as any
}

void __tsan_atomic_signal_fence(int) {}

#define PLAIN(size)                                \
  void __tsan_read##size(void* a) {                \
    scaling::touch(a, size, scaling::read, FROM);  \
  }                                                \
  void __tsan_write##size(void* a) {               \
    scaling::touch(a, size, scaling::write, FROM); \
  }                                                \
  void __tsan_unaligned_read##size(void* a) {      \
    scaling::touch(a, size, scaling::read, FROM);  \
  }                                                \
  void __tsan_unaligned_write##size(void* a) {     \
    scaling::touch(a, size, scaling::write, FROM); \
  }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

#define MODIFY(type, name, builtin, operand)                \
  type name(volatile type* a, type operand, int) {          \
    scaling::let_others_run();                              \
    scaling::touch(a, sizeof(type), scaling::modify, FROM); \
    return builtin(a, operand, __ATOMIC_SEQ_CST);           \
  }
#define EXCHANGE(type, name)                                                                       \
  bool name(volatile type* a, type* expected, type v, int, int) {                                  \
    scaling::let_others_run();                                                                     \
    scaling::touch(a, sizeof(type), scaling::modify, FROM);                                        \
    return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
#define ATOMIC(bits, type)                                             \
  type __tsan_atomic##bits##_load(const volatile type* a, int) {       \
    scaling::touch(a, sizeof(type), scaling::load, FROM);              \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);                       \
  }                                                                    \
  void __tsan_atomic##bits##_store(volatile type* a, type v, int) {    \
    scaling::touch(a, sizeof(type), scaling::store, FROM);             \
    __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                          \
    scaling::let_others_run();                                         \
  }                                                                    \
  MODIFY(type, __tsan_atomic##bits##_exchange, __atomic_exchange_n, v) \
  MODIFY(type, __tsan_atomic##bits##_fetch_add, __atomic_fetch_add, v) \
  MODIFY(type, __tsan_atomic##bits##_fetch_sub, __atomic_fetch_sub, v) \
  MODIFY(type, __tsan_atomic##bits##_fetch_and, __atomic_fetch_and, v) \
  MODIFY(type, __tsan_atomic##bits##_fetch_or, __atomic_fetch_or, v)   \
  MODIFY(type, __tsan_atomic##bits##_fetch_xor, __atomic_fetch_xor, v) \
  EXCHANGE(type, __tsan_atomic##bits##_compare_exchange_strong)        \
  EXCHANGE(type, __tsan_atomic##bits##_compare_exchange_weak)
ATOMIC(8, std::uint8_t)
ATOMIC(16, std::uint16_t)
ATOMIC(32, std::uint32_t)
ATOMIC(64, std::uint64_t)

// Linked with --wrap.
void* __real_memcpy(void* to, const void* from, unsigned long size);
void* __real_memmove(void* to, const void* from, unsigned long size);
int __real_pthread_mutex_lock(pthread_mutex_t* m);
int __real_pthread_mutex_trylock(pthread_mutex_t* m);
int __real_pthread_mutex_unlock(pthread_mutex_t* m);

void* __wrap_memcpy(void* to, const void* from, unsigned long size) {
  scaling::touch(from, size, scaling::read, FROM);
  scaling::touch(to, size, scaling::write, FROM);
  return __real_memcpy(to, from, size);
}

void* __wrap_memmove(void* to, const void* from, unsigned long size) {
  scaling::touch(from, size, scaling::read, FROM);
  scaling::touch(to, size, scaling::write, FROM);
  return __real_memmove(to, from, size);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t* m) {
  scaling::touch(m, 4, scaling::modify, FROM);
  return __real_pthread_mutex_lock(m);
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t* m) {
  scaling::touch(m, 4, scaling::modify, FROM);
  return __real_pthread_mutex_trylock(m);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t* m) {
  scaling::touch(m, 4, scaling::modify, FROM);
  return __real_pthread_mutex_unlock(m);
}

}  // extern "C"
