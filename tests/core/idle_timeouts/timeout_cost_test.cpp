// The cost of a timeout list's calls: no memory, and no look at the clock.
#include "core/idle_timeouts/idle_timeouts_test.hpp"

#ifndef VIGIL_TEST_UNDER_SANITIZER

#include "support/counted_new.hpp"

#include <dlfcn.h>
#include <time.h>

namespace {

thread_local std::uint64_t clock_reads = 0;

}  // namespace

// Replaces the C library's, for the library and the C++ library alike.
extern "C" int clock_gettime(clockid_t which, timespec* t) noexcept {
  using function = int(clockid_t, timespec*);
  static function* const real = reinterpret_cast<function*>(::dlsym(RTLD_NEXT, "clock_gettime"));
  ++clock_reads;
  return real(which, t);
}

namespace {

using namespace vigil::testing_support;

// Counts the looks of the calling thread: f must not park.
template <class F>
std::uint64_t clock_reads_of(F f) {
  const std::uint64_t before = clock_reads;
  f();
  return clock_reads - before;
}

}  // namespace

TEST_SUITE("timeout_list: cost") {
  TEST_CASE("adding, touching, removing and expiring allocate nothing") {
    in_virtual([] {
      int calls = 0;
      timeout_list l(10ms, [&](entry&) { ++calls; });
      std::deque<connection> c(10'000);
      const auto round = [&] {
        for (connection& each : c)
          l.add(each.idle);
        sleep_for(1ms);
        for (connection& each : c)
          each.idle.touch();
        for (std::size_t i = 0; i < c.size(); i += 2)
          timeout_list::remove(c[i].idle);
        sleep_for(1s);
      };
      CHECK(allocations_of(round) == 0);
      CHECK(calls == 2 * 5000);
    });
  }

  TEST_CASE("a touch with a given time reads no clock, one without reads it once") {
    in_runtime({.workers = {1}, .settings = {}}, [] {
      timeout_list l(1h, [](entry&) {});
      std::deque<connection> c(1000);
      for (connection& each : c)
        l.add(each.idle);
      const instant start = now();
      int kept = 0;
      CHECK(clock_reads_of([&] {
              for (connection& each : c) {
                kept += each.idle.touch(start + 1us);
                kept += each.idle.touch(start);
              }
            }) == 0);
      CHECK(clock_reads_of([&] {
              for (connection& each : c)
                kept += each.idle.touch();
            }) == 1000);
      CHECK(kept == 3000);
    });
  }
}

#endif
