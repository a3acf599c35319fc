// Random tests print their seed when they fail; VIGIL_SEED=n replays it. VIGIL_LONG=1
// makes them ten times as long.
#include "core/timer/timer_heap_helpers.hpp"
#include "support/in_runtime.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

namespace VIGIL_DETAIL {
namespace {

std::uint64_t pick_seed() {
  if (const char* const text = std::getenv("VIGIL_SEED")) return std::strtoull(text, nullptr, 0);
  return std::random_device{}();
}

std::size_t lengthened(int operations) {
  const char* const text = std::getenv("VIGIL_LONG");
  const bool is_long = text != nullptr && *text == '1';
  return static_cast<std::size_t>(is_long ? 10 * operations : testing_support::rounds(operations));
}

// A heap and a sorted set that go through the same operations.
class twins {
 public:
  twins(std::uint64_t seed, nanos keys, std::uint32_t ties)
      : random_(seed), keys_(0, keys), ties_(0, ties) {}

  timer_heap heap;

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  // Returns true while both agree.
  bool push() {
    const heap_entry e = fresh();
    if (!heap.reserve(heap.size() + 1)) return false;
    heap.push(e);
    model_.insert(image(e));
    return agree();
  }

  bool pop() { return took_least(heap.pop()) && agree(); }

  bool remove() {
    const std::size_t index = below(heap.size());
    const heap_entry expected = heap[index];
    const heap_entry removed = heap.remove(index);
    return image(removed) == image(expected) && model_.erase(image(removed)) == 1 && agree();
  }

  bool pop_until() {
    const nanos limit = heap[below(heap.size())].when();
    heap_entry out[64];
    const std::size_t most = below(std::size(out) + 1);
    const std::size_t n = heap.pop_until(limit, out, most);
    if (n > most) return false;
    for (std::size_t i = 0; i < n; ++i) {
      if (out[i].when() > limit || !took_least(out[i])) return false;
    }
    return (n == most || heap.empty() || heap.top().when() > limit) && agree();
  }

  // One random operation that moves the size towards `target`.
  bool step(std::size_t target) {
    if (heap.empty()) return push();
    const std::size_t roll = below(100);
    if (roll == 98) return pop_until();
    const bool grow = heap.size() < target ? roll < 75 : roll < 45;
    if (grow) return push();
    return roll % 2 == 0 ? pop() : remove();
  }

 private:
  using row = std::tuple<nanos, std::uint32_t, std::uint32_t, runtime_timer*>;

  static row image(const heap_entry& e) { return {e.key, e.tie, e.slack_us, e.timer}; }

  // The id makes each row unique, so a lost or doubled entry shows even among equal keys
  // and ties. One key in ten is near the least, as for a short sleep, and one in a
  // hundred is `never`.
  heap_entry fresh() {
    const std::size_t roll = below(100);
    heap_entry e = entry(keys_(random_), ties_(random_), ++ids_);
    if (roll < 10 && !heap.empty() && heap.top().key != never) e.key = heap.top().key + 1;
    if (roll == 99) e.key = never;
    e.slack_us = static_cast<std::uint32_t>(ids_);
    return e;
  }

  bool took_least(const heap_entry& e) {
    const row& least = *model_.begin();
    return e.key == std::get<0>(least) && e.tie == std::get<1>(least) &&
           model_.erase(image(e)) == 1;
  }

  bool agree() const {
    if (heap.size() != model_.size() || heap.empty() != model_.empty()) return false;
    if (model_.empty()) return heap.second_key() == never;
    const auto least = model_.begin();
    if (heap.top().key != std::get<0>(*least) || heap.top().tie != std::get<1>(*least)) {
      return false;
    }
    const auto second = std::next(least);
    return heap.second_key() == (second == model_.end() ? never : std::get<0>(*second));
  }

  std::mt19937_64 random_;
  std::uniform_int_distribution<nanos> keys_;
  std::uniform_int_distribution<std::uint32_t> ties_;
  std::uintptr_t ids_ = 0;
  std::set<row> model_;
};

}  // namespace

TEST_SUITE("timer_heap") {
  TEST_CASE("a new heap is empty and commits no memory") {
    timer_heap heap;
    CHECK(heap.empty());
    CHECK(heap.size() == 0);
    CHECK(heap.capacity() == 0);
    CHECK(heap.second_key() == never);
    CHECK(heap.verify());
  }

  TEST_CASE("entries leave in the order of their keys") {
    timer_heap heap;
    for (const nanos key : {50, 20, 90, 10, 70, 30, 80, 60, 40})
      push(heap, entry(key));
    CHECK(heap.verify());
    CHECK(drain_keys(heap) == std::vector<nanos>{10, 20, 30, 40, 50, 60, 70, 80, 90});
  }

  TEST_CASE("the smallest and the largest key are sorted like any other") {
    timer_heap heap;
    const nanos least = std::numeric_limits<nanos>::min();
    for (const nanos key : {never, nanos{0}, least, nanos{-1}})
      push(heap, entry(key));
    CHECK(drain_keys(heap) == std::vector<nanos>{least, -1, 0, never});
  }

  TEST_CASE("entries with equal keys leave by tie, counted modulo 2^32") {
    timer_heap heap;
    for (const std::uint32_t tie : {5U, 0xffffffffU, 2U, 0U, 3U, 1U, 4U, 0x7ffffffeU})
      push(heap, entry(7, tie));
    push(heap, entry(6, 9));
    CHECK(heap.pop().key == 6);
    for (const std::uint32_t tie : {0xffffffffU, 0U, 1U, 2U, 3U, 4U, 5U, 0x7ffffffeU}) {
      CHECK(heap.pop().tie == tie);
    }
  }

  TEST_CASE("an entry comes out as it went in") {
    timer_heap heap;
    push(heap, {.key = 3, .tie = 4, .slack_us = 5, .timer = as_timer(6)});
    const heap_entry e = heap.pop();
    CHECK(e.key == 3);
    CHECK(e.tie == 4);
    CHECK(e.slack_us == 5);
    CHECK(e.timer == as_timer(6));
  }

  TEST_CASE("the second key is the smaller child of the root") {
    timer_heap heap;
    push(heap, entry(10));
    CHECK(heap.second_key() == never);
    push(heap, entry(30));
    CHECK(heap.second_key() == 30);
    push(heap, entry(20));
    CHECK(heap.second_key() == 20);
    push(heap, entry(5));
    CHECK(heap.second_key() == 10);
  }

  // libuv e002340e5: for eight months its heap only sifted down here.
  TEST_CASE("removal from the middle sifts up as well as down") {
    timer_heap heap;
    //                     1
    //          100                  2
    //     110       120         3       4
    //  130   140  150  160    5
    const std::vector<nanos> slots{1, 100, 2, 110, 120, 3, 4, 130, 140, 150, 160, 5};
    for (const nanos key : slots)
      push(heap, entry(key));
    for (std::size_t i = 0; i < slots.size(); ++i)
      REQUIRE(heap[i].key == slots[i]);

    SUBCASE("up: the last leaf is before the parent of the hole") {
      CHECK(heap.remove(7).key == 130);
      CHECK(heap[1].key == 5);
      CHECK(heap[3].key == 100);
      CHECK(heap[7].key == 110);
    }
    SUBCASE("up: past a hole that has children") {
      CHECK(heap.remove(3).key == 110);
      CHECK(heap[1].key == 5);
    }
    SUBCASE("down: the last leaf is after the children of the hole") {
      CHECK(heap.remove(2).key == 2);
      CHECK(heap[2].key == 3);
    }
    SUBCASE("neither: the last slot itself goes") {
      CHECK(heap.remove(11).key == 5);
    }
    SUBCASE("the top goes") {
      CHECK(heap.remove(0).key == 1);
    }
    CHECK(heap.size() == slots.size() - 1);
    CHECK(heap.verify());
  }

  TEST_CASE("removal keeps the order whichever slot goes") {
    std::mt19937_64 random(1);
    for (std::size_t size = 1; size <= 40; ++size) {
      for (std::size_t index = 0; index < size; ++index) {
        timer_heap heap;
        std::multiset<nanos> keys;
        for (std::size_t i = 0; i < size; ++i) {
          const auto key = static_cast<nanos>(random() % 50);
          push(heap, entry(key));
          keys.insert(key);
        }
        keys.erase(keys.find(heap.remove(index).key));
        REQUIRE(heap.verify());
        REQUIRE(drain_keys(heap) == std::vector<nanos>(keys.begin(), keys.end()));
      }
    }
  }

  TEST_CASE("random operations on a small heap match a sorted set") {
    const std::uint64_t seed = pick_seed();
    INFO("VIGIL_SEED=", seed);
    twins both(seed, 400, 3);
    const std::size_t operations = lengthened(800'000);
    std::size_t target = 0;
    for (std::size_t i = 0; i < operations; ++i) {
      if (i % 2000 == 0) target = both.below(1000);
      const bool agree = both.step(target) && both.heap.verify();
      if (!agree) FAIL("first wrong after operation ", i);
    }
    while (!both.heap.empty())
      REQUIRE(both.pop());
  }

  TEST_CASE("random operations on a million entries match a sorted set") {
    const std::uint64_t seed = pick_seed();
    INFO("VIGIL_SEED=", seed);
    twins both(seed, nanos{1} << 40, 0x7fffffffU);
    const std::size_t entries = testing_support::is_short_form() ? 100'000 : 1'000'000;
    while (both.heap.size() < entries)
      REQUIRE(both.push());
    const std::size_t operations = lengthened(200'000);
    for (std::size_t i = 0; i < operations; ++i) {
      const bool agree = both.step(entries) && (i % 1000 != 0 || both.heap.verify());
      if (!agree) FAIL("first wrong after operation ", i);
    }
    CHECK(both.heap.verify());
    while (!both.heap.empty())
      REQUIRE(both.pop());
    CHECK(both.heap.verify());
  }

  TEST_CASE("a batch leaves in order, whatever the heap's shape") {
    std::mt19937_64 random(1);
    heap_entry out[64];
    for (const nanos range : {1, 30, 1'000'000}) {
      // From well above the size at which several move at once to below it.
      for (const std::size_t entries : {9000U, 4200U}) {
        for (const char* const order : {"any", "rising", "falling"}) {
          INFO("range ", range, ", entries ", entries, ", order ", order);
          std::vector<nanos> keys(entries);
          for (nanos& key : keys)
            key = static_cast<nanos>(random()) % range;
          std::vector<nanos> sorted = keys;
          std::sort(sorted.begin(), sorted.end());
          if (order[0] == 'r') keys = sorted;
          if (order[0] == 'f') keys.assign(sorted.rbegin(), sorted.rend());
          timer_heap heap;
          for (const nanos key : keys)
            push(heap, entry(key));
          std::vector<nanos> left;
          while (!heap.empty()) {
            const std::size_t n = heap.pop_until(never, out, 1 + random() % std::size(out));
            REQUIRE(n > 0);
            for (std::size_t i = 0; i < n; ++i)
              left.push_back(out[i].key);
            REQUIRE(heap.verify());
          }
          REQUIRE(left == sorted);
        }
      }
    }
  }

  TEST_CASE("a batch ends at the limit, less its slack") {
    timer_heap heap;
    for (nanos i = 0; i < 10'000; ++i)
      push(heap, entry(1'000'000 + i));
    heap_entry out[64];
    CHECK(heap.pop_until(999'999, out, 64) == 0);
    CHECK(heap.pop_until(1'000'009, out, 64) == 10);
    CHECK(heap.pop_until(never, out, 0) == 0);
    heap_entry slack = entry(1'000'005);
    slack.slack_us = 1;
    push(heap, slack);
    CHECK(heap.pop_until(999'004, out, 64) == 0);
    CHECK(heap.pop_until(999'005, out, 64) == 1);
    CHECK(heap.top().key == 1'000'010);
    CHECK(heap.size() == 9'990);
  }
}

}  // namespace VIGIL_DETAIL
