// Random tests print their seed when they fail; VIGIL_SEED=n replays it.
// VIGIL_LONG=1 makes them ten times as long.
#include "timer/timer_heap.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <new>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

std::uint64_t pick_seed() {
  if (const char* const text = std::getenv("VIGIL_SEED")) return std::strtoull(text, nullptr, 0);
  return std::random_device{}();
}

std::size_t lengthened(std::size_t operations) {
  const char* const text = std::getenv("VIGIL_LONG");
  return text != nullptr && *text == '1' ? 10 * operations : operations;
}

// The heap never follows the pointer, so a number serves as a timer.
runtime_timer* as_timer(std::uintptr_t id) {
  return reinterpret_cast<runtime_timer*>(id * 16);
}

heap_entry entry(nanos key, std::uint32_t tie = 0, std::uintptr_t id = 0) {
  return {.key = key, .tie = tie, .slack_us = 0, .timer = as_timer(id)};
}

void push(timer_heap& heap, heap_entry e) {
  REQUIRE(heap.reserve(heap.size() + 1));
  heap.push(e);
}

std::vector<nanos> drain_keys(timer_heap& heap) {
  std::vector<nanos> keys;
  while (!heap.empty())
    keys.push_back(heap.pop().key);
  return keys;
}

std::size_t resident_bytes(const timer_heap& heap, std::size_t entries) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = entries * sizeof(heap_entry);
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  auto* const address = const_cast<heap_entry*>(&heap[0]);
  REQUIRE(::mincore(address, bytes, pages.data()) == 0);
  std::size_t resident = 0;
  for (const unsigned char p : pages)
    resident += (p & 1U) != 0 ? page : 0;
  return resident;
}

// Runs the body in a child process; its result is the child's exit code.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The soft limit, so that it can be lifted again.
bool limit(decltype(RLIMIT_AS) resource, rlim_t bytes) {
  rlimit value{};
  if (::getrlimit(resource, &value) != 0) return false;
  value.rlim_cur = std::min(bytes, value.rlim_max);
  return ::setrlimit(resource, &value) == 0;
}

// The address space in use, read without the C++ heap.
std::size_t address_space_in_use() {
  char text[128] = {};
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t n = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (n <= 0) return 0;
  return std::strtoull(text, nullptr, 10) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// A heap and a sorted set that do the same.
class twins {
 public:
  twins(std::uint64_t seed, nanos keys, std::uint32_t ties)
      : random_(seed), keys_(0, keys), ties_(0, ties) {}

  timer_heap heap;

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  // True while both agree.
  bool push() {
    const heap_entry e = fresh();
    if (!heap.reserve(heap.size() + 1)) return false;
    heap.push(e);
    model_.insert(image(e));
    return agree();
  }

  bool pop() { return took_least(heap.pop()) && agree(); }

  bool replace_top() {
    const heap_entry least = heap.top();
    const heap_entry e = fresh();
    heap.replace_top(e);
    const bool was_least = took_least(least);
    model_.insert(image(e));
    return was_least && agree();
  }

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

  // One random operation that leads the size towards `target`.
  bool step(std::size_t target) {
    if (heap.empty()) return push();
    const std::size_t roll = below(100);
    if (roll < 20) return replace_top();
    if (roll == 98) return pop_until();
    const bool grow = heap.size() < target ? roll < 75 : roll < 45;
    if (grow) return push();
    return roll % 2 == 0 ? pop() : remove();
  }

 private:
  using row = std::tuple<nanos, std::uint32_t, std::uint32_t, runtime_timer*>;

  static row image(const heap_entry& e) { return {e.key, e.tie, e.slack_us, e.timer}; }

  // The id makes each row unique, so that a lost or doubled entry shows even
  // among equal keys and ties. One key in ten is near the least, as a short
  // sleep is, and one in a hundred is `never`.
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

  TEST_CASE("the smallest and the largest key have their place as any other") {
    timer_heap heap;
    const nanos least = std::numeric_limits<nanos>::min();
    for (const nanos key : {never, nanos{0}, least, nanos{-1}})
      push(heap, entry(key));
    CHECK(drain_keys(heap) == std::vector<nanos>{least, -1, 0, never});
  }

  TEST_CASE("entries with equal keys leave by tie") {
    timer_heap heap;
    for (const std::uint32_t tie : {5U, 0xffffffffU, 2U, 0U, 3U, 1U, 4U})
      push(heap, entry(7, tie));
    push(heap, entry(6, 9));
    CHECK(heap.pop().key == 6);
    for (const std::uint32_t tie : {0U, 1U, 2U, 3U, 4U, 5U, 0xffffffffU}) {
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

  TEST_CASE("replacing the top keeps the size and the order") {
    timer_heap heap;
    for (const nanos key : {1, 2, 3, 4, 5, 6})
      push(heap, entry(key));
    heap.replace_top(entry(0));
    CHECK(heap.top().key == 0);
    heap.replace_top(entry(4));
    CHECK(heap.top().key == 2);
    heap.replace_top(entry(9));
    CHECK(heap.size() == 6);
    CHECK(heap.verify());
    CHECK(drain_keys(heap) == std::vector<nanos>{3, 4, 4, 5, 6, 9});
  }

  TEST_CASE("replacing the only entry keeps one entry") {
    timer_heap heap;
    push(heap, entry(1));
    heap.replace_top(entry(2));
    CHECK(drain_keys(heap) == std::vector<nanos>{2});
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

  TEST_CASE("random operations on a small heap do what a sorted set does") {
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

  TEST_CASE("random operations on a million entries do what a sorted set does") {
    const std::uint64_t seed = pick_seed();
    INFO("VIGIL_SEED=", seed);
    twins both(seed, nanos{1} << 40, 0xffffffffU);
    constexpr std::size_t entries = 1'000'000;
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

  TEST_CASE("many taken at once leave in order, whatever the heap looks like") {
    std::mt19937_64 random(1);
    heap_entry out[64];
    for (const nanos range : {1, 30, 1'000'000}) {
      // From well above the size from which several move at once to below it.
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

  TEST_CASE("what is taken at once ends at the limit, less its slack") {
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

  TEST_CASE("the heap grows without moving an entry") {
    timer_heap heap;
    push(heap, entry(1));
    const heap_entry* const first = &heap[0];
    REQUIRE(heap.reserve(5'000'000));
    CHECK(heap.capacity() >= 5'000'000);
    CHECK(&heap[0] == first);
    CHECK(heap.top().key == 1);
    const std::size_t capacity = heap.capacity();
    CHECK(heap.reserve(10));
    CHECK(heap.capacity() == capacity);
  }

  TEST_CASE("growing one by one commits in ever larger steps") {
    timer_heap heap;
    std::size_t steps = 0;
    while (heap.capacity() < 1'000'000) {
      const std::size_t before = heap.capacity();
      REQUIRE(heap.reserve(before + 1));
      CHECK(heap.capacity() - before >= 65536 / sizeof(heap_entry) - 1);
      ++steps;
    }
    CHECK(steps < 25);
  }

  TEST_CASE("reserve() past the address space is refused") {
    timer_heap heap;
    push(heap, entry(1));
    const std::size_t capacity = heap.capacity();
    CHECK_FALSE(heap.reserve(std::numeric_limits<std::size_t>::max()));
    CHECK_FALSE(heap.reserve((std::size_t{16} << 30) / sizeof(heap_entry) + 1));
    CHECK(heap.capacity() == capacity);
    CHECK(heap.pop().key == 1);
  }

  TEST_CASE("a refused reserve() leaves a heap that goes on working") {
    CHECK(in_child([] {
            timer_heap heap;
            if (!heap.reserve(100)) return 1;
            const std::size_t capacity = heap.capacity();
            for (nanos key = 50; key > 0; --key)
              heap.push(entry(key));
            // Not 0: then Linux goes by the hard limit, for old valgrinds' sake.
            if (!limit(RLIMIT_DATA, 4096)) return 2;
            if (heap.reserve(capacity + 1)) return 3;
            if (heap.capacity() != capacity || heap.size() != 50 || !heap.verify()) return 4;
            for (nanos key = 100; key > 50; --key)
              heap.push(entry(key));
            for (nanos key = 1; key <= 100; ++key) {
              if (heap.pop().key != key) return 5;
            }
            // ThreadSanitizer needs memory in the destructor.
            if (!limit(RLIMIT_DATA, RLIM_INFINITY)) return 6;
            return heap.reserve(capacity + 1) ? 0 : 7;
          }) == 0);
  }

  TEST_CASE("where little address space is left, the heap takes a smaller part of it") {
    CHECK(in_child([] {
            const std::size_t used = address_space_in_use();
            if (used == 0 || !limit(RLIMIT_AS, used + (std::size_t{48} << 20))) return 1;
            timer_heap heap;
            // 32 MiB fit into 48 and hold a million entries, not two.
            if (!heap.reserve(1'000'000)) return 2;
            const std::size_t capacity = heap.capacity();
            if (heap.reserve(2'000'000) || heap.capacity() != capacity) return 3;
            for (nanos key = 1'000'000; key > 0; --key)
              heap.push(entry(key));
            return heap.pop().key == 1 && heap.verify() ? 0 : 4;
          }) == 0);
  }

  TEST_CASE("with no address space at all the constructor throws bad_alloc") {
    CHECK(in_child([] {
            const std::size_t used = address_space_in_use();
            if (used == 0 || !limit(RLIMIT_AS, used)) return 1;
            try {
              timer_heap heap;
            } catch (const std::bad_alloc&) {
              return 0;
            }
            return 2;
          }) == 0);
  }

  TEST_CASE("a burst that has ended leaves at most a quarter of its memory resident") {
    timer_heap heap;
    constexpr std::size_t burst = 1'000'000;
    REQUIRE(heap.reserve(burst));
    const std::size_t capacity = heap.capacity();
    for (std::size_t i = 0; i < burst; ++i)
      heap.push(entry(static_cast<nanos>(i)));
    const std::size_t full = resident_bytes(heap, burst);
    REQUIRE(full >= burst * sizeof(heap_entry));

    SUBCASE("by pop()") {
      while (heap.size() > 1000)
        heap.pop();
      CHECK(heap.top().key == static_cast<nanos>(burst - 1000));
    }
    SUBCASE("by remove()") {
      while (heap.size() > 1000)
        heap.remove(heap.size() / 2);
      CHECK(heap.top().key == 0);
    }
    CHECK(resident_bytes(heap, burst) <= full / 4);
    CHECK(heap.capacity() == capacity);
    CHECK(heap.verify());

    // What was promised is still there without another reserve().
    while (heap.size() < burst)
      heap.push(entry(static_cast<nanos>(heap.size())));
    CHECK(heap.verify());
  }

  TEST_CASE("a heap that falls by half and rises again gives nothing back") {
    timer_heap heap;
    constexpr std::size_t many = 100'000;
    REQUIRE(heap.reserve(many));
    for (std::size_t i = 0; i < many; ++i)
      heap.push(entry(static_cast<nanos>(i)));
    const std::size_t full = resident_bytes(heap, many);
    while (heap.size() > many / 2)
      heap.pop();
    heap.shrink();
    CHECK(resident_bytes(heap, many) == full);
  }
}

}  // namespace vigil::inline VIGIL_ABI::detail
