// Covers: src/core/timer/timer_heap.cpp
//
// The heap of timers against a std::map. Keys and ties are drawn from few values, so
// that equal ones are frequent; a run of pushes makes a heap large enough for the batches
// that move several leaves at once, and for giving memory back.
#include "core/timer/timer_heap.hpp"

#include "fuzz/input.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>

namespace {

using namespace vigil::detail;
using fuzz::expect;

struct row {
  nanos key;
  std::uint32_t tie;
  runtime_timer* timer;  // so that one of many equal ones is found at once

  friend bool operator<(const row& a, const row& b) {
    if (a.key != b.key) return a.key < b.key;
    if (a.tie != b.tie) return static_cast<std::int32_t>(a.tie - b.tie) < 0;
    return std::less<>()(a.timer, b.timer);
  }
};

class twins {
 public:
  explicit twins(fuzz::input& in) : in_(in) {}

  // Ties count modulo 2^32, so they are drawn from both sides of 0.
  void push(nanos key) {
    const auto tie = static_cast<std::uint32_t>(in_.number<std::int8_t>());
    push(key, tie, in_.byte());
  }

  void push(nanos key, std::uint32_t tie, std::uint32_t slack) {
    if (heap_.size() == most) return;
    // The heap never follows the pointer, so a number serves as a timer.
    auto* const timer = reinterpret_cast<runtime_timer*>(++made_ * 16);
    expect(heap_.reserve(heap_.size() + 1), "there is room for one more");
    heap_.push({.key = key, .tie = tie, .slack_us = slack, .timer = timer});
    slacks_.emplace(row{key, tie, timer}, slack);
  }

  void push_run() {
    const auto key = nanos{in_.number<std::uint16_t>()};
    const auto step = nanos{in_.number<std::int8_t>()};
    // Rarely, because it is slow: as many as need huge pages.
    const std::size_t n = in_.byte() == 0xff ? most : std::size_t{1} << in_.below(14);
    for (std::size_t i = 0; i < n; ++i)
      push(key + step * static_cast<nanos>(i % 4096), 0, static_cast<std::uint32_t>(i % 3));
  }

  void pop() {
    if (!heap_.empty()) expect_least(heap_.pop());
  }

  void remove() {
    if (heap_.empty()) return;
    const std::size_t index = in_.number<std::uint16_t>() % heap_.size();
    const heap_entry expected = heap_[index];
    const heap_entry removed = heap_.remove(index);
    expect(removed.timer == expected.timer, "remove() takes the entry of that slot");
    take(removed);
  }

  void pop_until() {
    std::array<heap_entry, 64> out = {};
    const std::size_t most_out = in_.below(out.size() + 1);
    const nanos limit = in_.flag() && !heap_.empty()
                            ? heap_[in_.number<std::uint16_t>() % heap_.size()].when()
                            : nanos{in_.number<std::uint16_t>()};
    const std::size_t n = heap_.pop_until(limit, out.data(), most_out);
    expect(n <= most_out, "a batch is not larger than its room");
    for (std::size_t i = 0; i < n; ++i) {
      expect(out[i].when() <= limit, "a batch ends at the limit");
      expect_least(out[i]);
    }
    expect(n == most_out || heap_.empty() || heap_.top().when() > limit, "a batch stops early");
  }

  void drain() {
    for (std::size_t n = std::size_t{1} << in_.below(18); n > 0 && !heap_.empty(); --n)
      expect_least(heap_.pop());
  }

  void reserve() {
    const std::size_t before = heap_.capacity();
    const std::size_t wanted = in_.flag() ? SIZE_MAX : in_.number<std::uint32_t>() % (1U << 20);
    const bool granted = heap_.reserve(wanted);
    expect(heap_.capacity() >= (granted ? wanted : before), "reserve() keeps its promise");
  }

  void check() const {
    expect(heap_.size() == slacks_.size() && heap_.empty() == slacks_.empty(), "size");
    expect(heap_.size() > most_verified || heap_.verify(), "TH1, TH2");
    if (slacks_.empty()) return expect(heap_.second_key() == never, "no second key");
    const auto least = slacks_.begin();
    expect(heap_.top().key == least->first.key, "the top's key");
    expect(heap_.top().tie == least->first.tie, "the top's tie");
    const auto second = std::next(least);
    expect(heap_.second_key() == (second == slacks_.end() ? never : second->first.key),
           "the second key");
  }

 private:
  static constexpr std::size_t most = 100'000;
  static constexpr std::size_t most_verified = 512;  // after each step: it is O(n)

  void expect_least(const heap_entry& e) {
    expect(!slacks_.empty(), "an entry came out that never went in");
    const row& least = slacks_.begin()->first;
    expect(e.key == least.key && e.tie == least.tie, "the least entry comes out");
    take(e);
  }

  void take(const heap_entry& e) {
    const auto found = slacks_.find({e.key, e.tie, e.timer});
    expect(found != slacks_.end(), "an entry came out twice, or changed");
    expect(found->second == e.slack_us, "an entry comes out as it went in");
    slacks_.erase(found);
  }

  fuzz::input& in_;
  timer_heap heap_;
  std::uintptr_t made_ = 0;
  std::map<row, std::uint32_t> slacks_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  twins both(in);
  while (!in.ended()) {
    switch (in.below(8)) {
      case 0:
        both.pop();
        break;
      case 1:
        both.push(in.byte());
        break;
      case 2:
        both.push(in.one_of({nanos{0}, never}));
        break;
      case 3:
        both.remove();
        break;
      case 4:
        both.pop_until();
        break;
      case 5:
        both.push_run();
        break;
      case 6:
        both.drain();
        break;
      default:
        both.reserve();
        break;
    }
    both.check();
  }
  return 0;
}
