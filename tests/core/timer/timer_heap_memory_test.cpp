// The memory of timer_heap: growth, limits, and a burst that has ended.
#include "core/timer/timer_heap_helpers.hpp"
#include "support/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

using testing_support::limits_are_kept;
using testing_support::no_limits;

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

// Runs the body in a child process and returns the child's exit code.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Sets the soft limit only, so that it can be lifted again.
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

}  // namespace

TEST_SUITE("timer_heap") {
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
    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
    CHECK(in_child([] {
            timer_heap heap;
            if (!heap.reserve(100)) return 1;
            const std::size_t capacity = heap.capacity();
            for (nanos key = 50; key > 0; --key)
              heap.push(entry(key));
            // Not 0: with 0 Linux applies the hard limit, for the sake of old valgrinds.
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
    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
    CHECK(in_child([] {
            const std::size_t used = address_space_in_use();
            if (used == 0 || !limit(RLIMIT_AS, used + (std::size_t{48} << 20))) return 1;
            timer_heap heap;
            // 32 MiB fit into 48 and hold one million entries, not two.
            if (!heap.reserve(1'000'000)) return 2;
            const std::size_t capacity = heap.capacity();
            if (heap.reserve(2'000'000) || heap.capacity() != capacity) return 3;
            for (nanos key = 1'000'000; key > 0; --key)
              heap.push(entry(key));
            return heap.pop().key == 1 && heap.verify() ? 0 : 4;
          }) == 0);
  }

  TEST_CASE("with no address space at all the constructor throws bad_alloc") {
    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
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

    // The reserved room is still there without another reserve().
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

}  // namespace VIGIL_DETAIL
