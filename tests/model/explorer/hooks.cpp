// The calls of the instrumented code at each access to memory: the entry points of the
// compiler's thread instrumentation, with the explorer behind them.
#include "explorer/engine.hpp"

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include <dlfcn.h>

namespace model {
namespace {

order order_of(int compilers) noexcept {
  switch (compilers) {
    case __ATOMIC_RELAXED:
      return order::relaxed;
    case __ATOMIC_CONSUME:
    case __ATOMIC_ACQUIRE:
      return order::acquire;
    case __ATOMIC_RELEASE:
      return order::release;
    case __ATOMIC_ACQ_REL:
      return order::acq_rel;
    default:
      return order::seq_cst;
  }
}

const char* name_of(order o) noexcept {
  constexpr const char* names[] = {"relaxed", "acquire", "release", "acq_rel", "seq_cst"};
  return names[static_cast<int>(o)];
}

unsigned long offset_of(const void* code) {
  Dl_info info{};
  if (::dladdr(code, &info) == 0) return 0;
  // The call itself, not the instruction after it.
  return static_cast<unsigned long>(static_cast<const char*>(code) -
                                    static_cast<const char*>(info.dli_fbase) - 1);
}

void check_alive(engine& e, const void* address, const void* from) {
  if (!freed_memory(address)) return;
  e.trace(from, "uses memory after it was freed");
  e.fail("memory is used after it was freed");
}

// One atomic operation under way.
class operation {
 public:
  operation(engine& e, const volatile void* object, unsigned size, bool writes, const void* from)
      : engine_(e), address_(const_cast<const void*>(object)), from_(from) {
    const unsigned thread = e.current();
    location = e.mem().find(address_, size, thread);
    const std::uint64_t switches = e.switches();
    e.reach({location, writes});
    if (e.switches() != switches) {
      // Others ran meanwhile: the object may have ended, and another begun.
      const unsigned before = std::exchange(location, e.mem().find(address_, size, thread));
      if (location != before) e.record({location, writes});
    }
    check_alive(e, address_, from);
    const auto start = reinterpret_cast<std::uintptr_t>(address_);
    if (const char* const fault = e.mem().atomic_access(start, size, thread)) {
      e.trace(from, "%s", fault);
      e.fail(fault);
    }
  }

  std::uint16_t newest() const { return engine_.mem().newest(location); }

  std::uint64_t value_of(std::uint16_t which) const { return engine_.mem().value(location, which); }

  std::uint64_t read(std::uint16_t which, order o) {
    return engine_.mem().read(location, engine_.current(), which, o);
  }

  void write(std::uint64_t value, order o, bool continues) {
    engine_.mem().write(location, engine_.current(), value, o, continues);
    engine_.wrote();
    engine_.offer_timeouts(address_);
  }

  // Chooses the message that a load, or a failing compare-exchange, sees: of those that
  // C++ allows, only those that make a difference. `unless`: a value that may only be
  // seen as the newest.
  std::uint16_t choose(order o, const std::uint64_t* unless) {
    engine& e = engine_;
    const std::uint16_t latest = newest();
    const std::uint16_t oldest = e.mem().oldest_readable(location, e.current(), o);
    if (oldest == latest || !e.exploring()) return latest;
    thread& self = e.of(e.current());
    // A stored value is seen after a while: no thread reads one old value for ever.
    if (self.repeated_at == static_cast<std::int64_t>(location) && self.repeated >= 2) {
      self.repeated_at = -1;
      return latest;
    }
    std::uint16_t candidates[32] = {latest};
    std::uint16_t n = 1;
    for (std::uint16_t m = latest; m-- > oldest;) {
      if (unless != nullptr && value_of(m) == *unless) continue;
      std::uint16_t same = n;
      // A relaxed load takes nothing over, so among equal values the oldest leaves the
      // most to later loads.
      for (std::uint16_t i = 0; o == order::relaxed && i < n; ++i) {
        if (value_of(candidates[i]) == value_of(m)) same = i;
      }
      if (same < n) {
        candidates[same] = m;
      } else if (n < 32) {
        candidates[n++] = m;
      }
    }
    const std::uint16_t chosen = candidates[e.choose_value(n)];
    if (value_of(chosen) != value_of(latest)) {
      self.repeated = static_cast<std::uint16_t>(
          self.repeated_at == static_cast<std::int64_t>(location) ? self.repeated + 1 : 1);
      self.repeated_at = static_cast<std::int64_t>(location);
    }
    return chosen;
  }

  unsigned location = 0;

 private:
  engine& engine_;
  const void* address_;
  const void* from_;
};

template <class T>
T load(const volatile T* object, int compilers, const void* from) {
  engine* const program = engine_of_program();
  if (program == nullptr) return __atomic_load_n(object, __ATOMIC_SEQ_CST);
  engine& e = *program;
  const inside_engine guard(e);
  const order o = e.order_at(from, order_of(compilers), access::load);
  if (e.observing) {
    const unsigned l = e.mem().find(const_cast<const T*>(object), sizeof(T), e.current());
    e.record({l, false});
    return static_cast<T>(e.mem().read(l, e.current(), e.mem().newest(l), o));
  }
  operation op(e, object, sizeof(T), false, from);
  const std::uint16_t which = op.choose(o, nullptr);
  const auto value = static_cast<T>(op.read(which, o));
  e.of(e.current()).looks_at(op.location);
  e.trace(from,
          "load   word %u -> %llx%s, %s",
          op.location,
          static_cast<unsigned long long>(value),
          which == op.newest() ? "" : " (stale)",
          name_of(o));
  return value;
}

template <class T>
void store(volatile T* object, T value, int compilers, const void* from) {
  engine* const program = engine_of_program();
  if (program == nullptr) {
    __atomic_store_n(object, value, __ATOMIC_SEQ_CST);
    return;
  }
  engine& e = *program;
  const inside_engine guard(e);
  const order o = e.order_at(from, order_of(compilers), access::store);
  operation op(e, object, sizeof(T), true, from);
  __atomic_store_n(object, value, __ATOMIC_SEQ_CST);
  op.write(static_cast<std::uint64_t>(value), o, false);
  e.trace(from,
          "store  word %u := %llx, %s",
          op.location,
          static_cast<unsigned long long>(value),
          name_of(o));
}

template <class T, class F>
T modify(volatile T* object, F&& f, int compilers, const void* from) {
  engine* const program = engine_of_program();
  if (program == nullptr) {
    T before = __atomic_load_n(object, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(
        object, &before, f(before), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return before;
  }
  engine& e = *program;
  const inside_engine guard(e);
  const order o = e.order_at(from, order_of(compilers), access::modify);
  operation op(e, object, sizeof(T), true, from);
  const auto before = static_cast<T>(op.read(op.newest(), o));
  const T value = f(before);
  __atomic_store_n(object, value, __ATOMIC_SEQ_CST);
  op.write(static_cast<std::uint64_t>(value), o, true);
  e.trace(from,
          "modify word %u: %llx -> %llx, %s",
          op.location,
          static_cast<unsigned long long>(before),
          static_cast<unsigned long long>(value),
          name_of(o));
  return before;
}

template <class T>
bool compare_exchange(
    volatile T* object, T* expected, T value, int compilers, int on_failure, const void* from) {
  engine* const program = engine_of_program();
  if (program == nullptr) {
    return __atomic_compare_exchange_n(
        object, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }
  engine& e = *program;
  const inside_engine guard(e);
  const order o = e.order_at(from, order_of(compilers), access::modify);
  const order failing = e.weakened.empty() ? order_of(on_failure)
                                           : e.order_at(from, order_of(on_failure), access::load);
  operation op(e, object, sizeof(T), true, from);
  const auto wanted = static_cast<std::uint64_t>(*expected);
  // A failing compare-exchange is a load: it may have seen an older value.
  const std::uint16_t which = op.choose(failing, &wanted);
  const bool succeeds = which == op.newest() && op.value_of(which) == wanted;
  if (!succeeds) {
    *expected = static_cast<T>(op.read(which, failing));
    e.of(e.current()).looks_at(op.location);
    e.trace(from,
            "compare-exchange word %u: expects %llx, sees %llx%s",
            op.location,
            static_cast<unsigned long long>(wanted),
            static_cast<unsigned long long>(*expected),
            which == op.newest() ? "" : " (stale)");
    return false;
  }
  op.read(which, o);
  __atomic_store_n(object, value, __ATOMIC_SEQ_CST);
  op.write(static_cast<std::uint64_t>(value), o, true);
  e.trace(from,
          "compare-exchange word %u: %llx -> %llx, %s",
          op.location,
          static_cast<unsigned long long>(wanted),
          static_cast<unsigned long long>(value),
          name_of(o));
  return true;
}

void plain(const void* address, std::size_t size, bool is_write, const void* from) {
  engine* const program = engine_of_program();
  if (program == nullptr) return;
  engine& e = *program;
  const inside_engine guard(e);
  if (e.observing || (!is_in_arena(address) && is_thread_local(address))) return;
  check_alive(e, address, from);
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  if (const char* const fault = e.mem().plain(start, size, is_write, e.current())) {
    e.trace(from, "%s", fault);
    e.fail(fault);
  }
}

}  // namespace

order engine::watched_order(const void* from, order written, access what) {
  const auto [at, is_new] = offsets_.try_emplace(from, 0ul);
  if (is_new) at->second = offset_of(from);
  const unsigned long offset = at->second;
  if (written == order::relaxed) return written;
  if (watches_orders) {
    constexpr const char* names[] = {"load", "store", "modify"};
    order_sites.insert({offset, names[static_cast<int>(what)], name_of(written)});
  }
  if (weakened.count(offset) == 0) return written;
  if (written != order::seq_cst) return order::relaxed;
  switch (what) {
    case access::load:
      return order::acquire;
    case access::store:
      return order::release;
    case access::modify:
      break;
  }
  return order::acq_rel;
}

std::set<order_site> take_order_sites() {
  engine& e = engine::get();
  e.watches_orders = true;
  return std::exchange(e.order_sites, {});
}

void weaken_orders(const std::set<unsigned long>& offsets) {
  engine::get().weakened = offsets;
}

}  // namespace model

// The names and types are the compiler's.
#define FROM __builtin_return_address(0)

extern "C" {

void __tsan_init() {}

void __tsan_func_entry(void*) {}

void __tsan_func_exit() {}

void __tsan_vptr_update(void** address, void*) {
  model::plain(address, sizeof(void*), true, FROM);
}

void __tsan_vptr_read(void** address) {
  model::plain(address, sizeof(void*), false, FROM);
}

void __tsan_read_range(void* address, unsigned long size) {
  model::plain(address, size, false, FROM);
}

void __tsan_write_range(void* address, unsigned long size) {
  model::plain(address, size, true, FROM);
}

#define PLAIN(size)                            \
  void __tsan_read##size(void* address) {      \
    model::plain(address, size, false, FROM);  \
  }                                            \
  void __tsan_write##size(void* address) {     \
    model::plain(address, size, true, FROM);   \
  }                                            \
  void __tsan_unaligned_read##size(void* a) {  \
    model::plain(a, size, false, FROM);        \
  }                                            \
  void __tsan_unaligned_write##size(void* a) { \
    model::plain(a, size, true, FROM);         \
  }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

// The functions that the compiler calls for larger copies (linked with --wrap).
void* __real_memcpy(void* to, const void* from, unsigned long size);
void* __real_memmove(void* to, const void* from, unsigned long size);
void* __real_memset(void* to, int value, unsigned long size);
void* __wrap_memcpy(void* to, const void* from, unsigned long size);
void* __wrap_memmove(void* to, const void* from, unsigned long size);
void* __wrap_memset(void* to, int value, unsigned long size);

void* __wrap_memcpy(void* to, const void* from, unsigned long size) {
  model::plain(from, size, false, FROM);
  model::plain(to, size, true, FROM);
  return __real_memcpy(to, from, size);
}

void* __wrap_memmove(void* to, const void* from, unsigned long size) {
  model::plain(from, size, false, FROM);
  model::plain(to, size, true, FROM);
  return __real_memmove(to, from, size);
}

void* __wrap_memset(void* to, int value, unsigned long size) {
  model::plain(to, size, true, FROM);
  return __real_memset(to, value, size);
}

void __tsan_atomic_thread_fence(int) {
  std::fprintf(stderr, "model: fences are not modelled: order the operation itself\n");
  __builtin_abort();
}

void __tsan_atomic_signal_fence(int) {}

#define ATOMIC(bits, type)                                                \
  type __tsan_atomic##bits##_load(const volatile type* a, int o) {        \
    return model::load(a, o, FROM);                                       \
  }                                                                       \
  void __tsan_atomic##bits##_store(volatile type* a, type v, int o) {     \
    model::store(a, v, o, FROM);                                          \
  }                                                                       \
  type __tsan_atomic##bits##_exchange(volatile type* a, type v, int o) {  \
    return model::modify(                                                 \
        a, [v](type) { return v; }, o, FROM);                             \
  }                                                                       \
  type __tsan_atomic##bits##_fetch_add(volatile type* a, type v, int o) { \
    return model::modify(                                                 \
        a, [v](type b) { return static_cast<type>(b + v); }, o, FROM);    \
  }                                                                       \
  type __tsan_atomic##bits##_fetch_sub(volatile type* a, type v, int o) { \
    return model::modify(                                                 \
        a, [v](type b) { return static_cast<type>(b - v); }, o, FROM);    \
  }                                                                       \
  type __tsan_atomic##bits##_fetch_and(volatile type* a, type v, int o) { \
    return model::modify(                                                 \
        a, [v](type b) { return static_cast<type>(b & v); }, o, FROM);    \
  }                                                                       \
  type __tsan_atomic##bits##_fetch_or(volatile type* a, type v, int o) {  \
    return model::modify(                                                 \
        a, [v](type b) { return static_cast<type>(b | v); }, o, FROM);    \
  }                                                                       \
  type __tsan_atomic##bits##_fetch_xor(volatile type* a, type v, int o) { \
    return model::modify(                                                 \
        a, [v](type b) { return static_cast<type>(b ^ v); }, o, FROM);    \
  }                                                                       \
  bool __tsan_atomic##bits##_compare_exchange_strong(                     \
      volatile type* a, type* c, type v, int o, int f) {                  \
    return model::compare_exchange(a, c, v, o, f, FROM);                  \
  }                                                                       \
  bool __tsan_atomic##bits##_compare_exchange_weak(                       \
      volatile type* a, type* c, type v, int o, int f) {                  \
    return model::compare_exchange(a, c, v, o, f, FROM);                  \
  }
ATOMIC(8, std::uint8_t)
ATOMIC(16, std::uint16_t)
ATOMIC(32, std::uint32_t)
ATOMIC(64, std::uint64_t)

}  // extern "C"
