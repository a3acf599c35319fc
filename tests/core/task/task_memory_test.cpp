// The memory that a sleeping task has.
#include "core/task/task_test.hpp"
#include "support/child.hpp"

#include <cstddef>
#include <cstdio>

#include <sys/prctl.h>

using namespace vigil::testing_support;

#ifndef VIGIL_TEST_UNDER_SANITIZER  // a sanitizer has an allocator and shadows of its own

namespace {

// The resident bytes of all mappings, to the page: what statm says may be off by many
// pages for each processor. 0 if the kernel does not report them.
std::size_t resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/smaps", "r"),
                                                             &std::fclose);
  if (file == nullptr) return 0;
  std::size_t sum = 0;
  char line[512];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    std::size_t kilobytes = 0;
    if (std::sscanf(line, "Rss: %zu kB", &kilobytes) == 1) sum += kilobytes * 1024;
  }
  return sum;
}

task<> sleeps(int& woken) {
  co_await co::sleep_for(1h);
  ++woken;
}

}  // namespace

TEST_SUITE("task: memory") {
  // Counts the pages that come to be resident while they are started, of malloc (tasks
  // and frames) and of the library's own mappings (timers and their heap). Page tables
  // are not among them. A process of its own has no free memory of earlier tests.
  TEST_CASE("child: many tasks sleep" * doctest::skip()) {
    // A huge page would count in full with its first byte.
    if (::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) {
      std::puts("skipped: huge pages cannot be turned off here");
      return;
    }
    constexpr std::size_t many = 100'000;
    int woken = 0;
    std::size_t before = 0;
    std::size_t asleep = 0;
    in_virtual([&] {
      vigil::spawn(sleeps(woken)).join();  // the first one makes what all share
      before = resident_bytes();
      for (std::size_t i = 0; i < many; ++i)
        vigil::go(sleeps(woken));
      vigil::testing::settle();
      asleep = resident_bytes();
      CHECK(woken == 1);
      vigil::sleep_for(2h);
    });
    CHECK(woken == 1 + static_cast<int>(many));
    if (before == 0) {
      std::puts("skipped: the kernel does not report resident pages here");
      return;
    }
    const double each = static_cast<double>(asleep - before) / many;
    std::printf("%.1f bytes each\n", each);
    CHECK(each <= 400);
    CHECK(each >= 200);  // or it was not counted
  }

  TEST_CASE("a sleeping task takes at most 400 bytes, its frame and its timer included") {
    const child_result r = run_child("child: many tasks sleep");
    CHECK_MESSAGE(r.succeeded(), r.output);
    if (const std::string why = r.skipped(); !why.empty()) MESSAGE(why);
  }
}

#endif
