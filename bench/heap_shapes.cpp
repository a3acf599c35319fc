// Four shapes of timer_heap on the same traces: the library's binary heap, a heap with
// four children, a radix heap, and a wheel of two levels over a heap. Decision 0001 has
// the table.
//
// Run:     ninja -C build/release bench/heap_shapes, then
//          build/release/bench/heap_shapes
// Prints:  nanoseconds for an entry that is pushed and popped, the least of five rounds.
//
// Stopping is not among the traces: a stopped timer leaves its entry where it is.
#include "core/base/nanos.hpp"
#include "core/timer/timer_heap.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace {

using vigil::detail::heap_entry;
using vigil::detail::nanos;
using vigil::detail::never;
using vigil::detail::timer_heap;

bool before(const heap_entry& a, const heap_entry& b) {
  return a.key != b.key ? a.key < b.key : a.tie < b.tie;
}

// --- the shapes: push(), and pop_until(limit, out, most), in order of key and tie

class binary {
 public:
  explicit binary(std::size_t most) {
    if (!heap_.reserve(most)) std::abort();
  }

  void push(const heap_entry& e) { heap_.push(e); }

  std::size_t pop_until(nanos limit, heap_entry* out, std::size_t most) {
    return heap_.pop_until(limit, out, most);
  }

 private:
  timer_heap heap_;
};

class quaternary {
 public:
  explicit quaternary(std::size_t most) { slots_.reserve(most); }

  void push(const heap_entry& e) {
    std::size_t hole = slots_.size();
    slots_.push_back(e);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (!before(e, slots_[parent])) break;
      slots_[hole] = slots_[parent];
      hole = parent;
    }
    slots_[hole] = e;
  }

  std::size_t pop_until(nanos limit, heap_entry* out, std::size_t most) {
    std::size_t n = 0;
    while (n < most && !slots_.empty() && slots_[0].key <= limit)
      out[n++] = pop();
    return n;
  }

  bool empty() const { return slots_.empty(); }

  const heap_entry& top() const { return slots_[0]; }

 private:
  // Down to a leaf along the smallest children, and up from there: timer_heap's way.
  heap_entry pop() {
    const heap_entry removed = slots_[0];
    const heap_entry last = slots_.back();
    slots_.pop_back();
    const std::size_t size = slots_.size();
    if (size == 0) return removed;
    std::size_t hole = 0;
    for (std::size_t child = 1; child < size; child = 4 * hole + 1) {
      if (const std::size_t below = 4 * child + 1; below + 15 < size) {
        for (std::size_t i = 0; i < 16; i += 2)
          __builtin_prefetch(&slots_[below + i]);
      }
      std::size_t least = child;
      const std::size_t end = std::min(child + 4, size);
      for (std::size_t i = child + 1; i < end; ++i) {
        if (before(slots_[i], slots_[least])) least = i;
      }
      slots_[hole] = slots_[least];
      hole = least;
    }
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (!before(last, slots_[parent])) break;
      slots_[hole] = slots_[parent];
      hole = parent;
    }
    slots_[hole] = last;
    return removed;
  }

  std::vector<heap_entry> slots_;
};

// Buckets by the highest bit in which a key differs from the least one popped. It needs
// keys that are not before that: an earlier one is taken for as late as that.
class radix {
 public:
  explicit radix(std::size_t) {}

  void push(const heap_entry& e) { buckets_[bucket_of(e.key)].push_back(e); }

  std::size_t pop_until(nanos limit, heap_entry* out, std::size_t most) {
    std::size_t n = 0;
    while (n < most && refill(limit)) {
      auto& due = buckets_[0];
      for (; n < most && next_ < due.size(); ++next_)
        out[n++] = due[next_];
      if (next_ == due.size()) {
        due.clear();
        next_ = 0;
      }
    }
    return n;
  }

 private:
  std::size_t bucket_of(nanos key) const {
    return key <= last_
               ? 0
               : static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(key ^ last_)));
  }

  // Makes the first bucket hold the entries with the least key, if that is due.
  bool refill(nanos limit) {
    if (next_ < buckets_[0].size()) return last_ <= limit;
    std::size_t b = 1;
    while (b < buckets_.size() && buckets_[b].empty())
      ++b;
    if (b == buckets_.size()) return false;
    const auto least = std::min_element(buckets_[b].begin(), buckets_[b].end(), before)->key;
    if (least > limit) return false;
    last_ = least;
    std::vector<heap_entry> moved;
    moved.swap(buckets_[b]);
    for (const heap_entry& e : moved)
      push(e);
    std::sort(buckets_[0].begin(), buckets_[0].end(), before);
    moved.clear();
    if (buckets_[b].empty()) buckets_[b].swap(moved);
    return true;
  }

  nanos last_ = 0;
  std::size_t next_ = 0;
  std::array<std::vector<heap_entry>, 65> buckets_;
};

// 256 slots of about a millisecond, 256 of a quarter of a second, and a heap for what is
// later. A slot that begins goes into a small heap, in which its entries come into order.
class wheel {
 public:
  explicit wheel(std::size_t) : now_(4096), later_(4096) {}

  void push(const heap_entry& e) {
    if (e.key < fine_end(at_)) {
      now_.push(e);
    } else if (e.key - at_ * fine < span) {
      fine_[static_cast<std::size_t>(e.key / fine) % slots].push_back(e);
    } else if (e.key - at_ * fine < span * (slots - 1)) {
      coarse_[static_cast<std::size_t>(e.key / span) % slots].push_back(e);
    } else {
      later_.push(e);
    }
  }

  std::size_t pop_until(nanos limit, heap_entry* out, std::size_t most) {
    std::size_t n = now_.pop_until(limit, out, most);
    while (n < most && fine_end(at_) <= limit) {
      step();
      n += now_.pop_until(limit, out + n, most - n);
    }
    return n;
  }

 private:
  static constexpr nanos fine = nanos{1} << 20;
  static constexpr nanos slots = 256;
  static constexpr nanos span = fine * slots;

  static nanos fine_end(nanos at) { return (at + 1) * fine; }

  void step() {
    ++at_;
    if (at_ % slots == 0) {
      spread(coarse_[static_cast<std::size_t>(at_ / slots) % slots]);
      heap_entry e;
      while (later_.pop_until(at_ * fine + span * (slots - 1) - 1, &e, 1) != 0)
        push(e);
    }
    spread(fine_[static_cast<std::size_t>(at_) % slots]);
  }

  void spread(std::vector<heap_entry>& slot) {
    std::vector<heap_entry> moved;
    moved.swap(slot);
    for (const heap_entry& e : moved)
      push(e);
    moved.clear();
    if (slot.empty()) slot.swap(moved);
  }

  nanos at_ = 0;  // the fine slot that has begun
  quaternary now_;
  quaternary later_;
  std::array<std::vector<heap_entry>, slots> fine_;
  std::array<std::vector<heap_entry>, slots> coarse_;
};

// --- the traces

constexpr nanos second = 1'000'000'000;

nanos now() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

class checked {
 public:
  void take(const heap_entry* popped, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      if (before(popped[i], last_)) std::abort();
      last_ = popped[i];
    }
    count_ += n;
  }

  std::size_t count() const { return count_; }

 private:
  heap_entry last_{};
  std::size_t count_ = 0;
};

constexpr std::size_t batch = 64;

// How far the time goes on between two looks: about as many entries come due in each.
nanos step_of(std::size_t n) {
  return 100'000 * std::max<nanos>(1, 100'000 / static_cast<nanos>(n));
}

// All within a second, pushed first and popped as the time comes; the second time, when
// the memory is there.
template <class Shape>
double burst(std::size_t n) {
  std::minstd_rand dice(1);
  std::uniform_int_distribution<nanos> within(0, second);
  Shape shape(n);
  std::array<heap_entry, batch> out;
  checked popped;
  nanos begun = 0;
  nanos t = 0;
  for (std::size_t pass = 1; pass <= 2; ++pass) {
    begun = now();
    const nanos start = t;
    for (std::uint32_t i = 0; i < n; ++i)
      shape.push({start + within(dice), i, 0, nullptr});
    for (; popped.count() < n * pass; t += step_of(n)) {
      while (const std::size_t k = shape.pop_until(t, out.data(), batch))
        popped.take(out.data(), k);
    }
  }
  return static_cast<double>(now() - begun) / static_cast<double>(n);
}

// n are pending all the time: each that comes is pushed again, `next` later.
template <class Shape, class Next>
double hold(std::size_t n, std::size_t rounds, Next next) {
  std::minstd_rand dice(1);
  Shape shape(n + batch);
  std::array<heap_entry, batch> out;
  checked popped;
  std::uint32_t tie = 0;
  for (std::size_t i = 0; i < n; ++i)
    shape.push({next(dice), tie++, 0, nullptr});
  const nanos begun = now();
  for (nanos t = 0; popped.count() < rounds; t += step_of(n)) {
    while (const std::size_t k = shape.pop_until(t, out.data(), batch)) {
      popped.take(out.data(), k);
      for (std::size_t i = 0; i < k; ++i)
        shape.push({t + 1 + next(dice), tie++, 0, nullptr});
    }
  }
  return static_cast<double>(now() - begun) / static_cast<double>(popped.count());
}

nanos any_time(std::minstd_rand& dice) {
  return std::uniform_int_distribution<nanos>(0, second)(dice);
}

// Timeouts of a few lengths, as servers have them.
nanos few_lengths(std::minstd_rand& dice) {
  constexpr std::array<nanos, 5> lengths{5'000'000, 100'000'000, second, 5 * second, 120 * second};
  return lengths[std::uniform_int_distribution<std::size_t>(0, lengths.size() - 1)(dice)];
}

template <class F>
double least(F f) {
  double best = f();
  for (int i = 1; i < 5; ++i)
    best = std::min(best, f());
  return best;
}

template <class Shape>
std::array<double, 3> figures(std::size_t n) {
  const std::size_t rounds = std::max<std::size_t>(n, 200'000);
  return {least([n] { return burst<Shape>(n); }),
          least([=] { return hold<Shape>(n, rounds, any_time); }),
          least([=] { return hold<Shape>(n, rounds, few_lengths); })};
}

}  // namespace

int main() {
  std::puts("entries   trace            binary      4-ary      radix      wheel");
  for (const std::size_t n : {std::size_t{1'000}, std::size_t{100'000}, std::size_t{1'000'000}}) {
    const std::array all{
        figures<binary>(n), figures<quaternary>(n), figures<radix>(n), figures<wheel>(n)};
    constexpr std::array names{"burst", "any time", "few lengths"};
    for (std::size_t trace = 0; trace < names.size(); ++trace) {
      std::printf("%-9zu %-12s", n, names[trace]);
      for (const auto& shape : all)
        std::printf(" %10.1f", shape[trace]);
      std::puts("");
    }
  }
  return 0;
}
