// Has libunwind, a foreign unwinder as in profilers and crash handlers, go up fibers.
#include "core/machine/jump.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#define UNW_LOCAL_ONLY
#include <libunwind.h>

using namespace vigil::testing_support;

namespace {

struct walk {
  std::vector<unw_word_t> begins;  // of the functions, the innermost first
  int last = 1;                    // what the last step returned: 0 at the end
};

[[gnu::noinline]] walk walk_up() {
  walk w;
  unw_context_t here;
  unw_cursor_t at;
  REQUIRE(unw_getcontext(&here) == 0);
  REQUIRE(unw_init_local(&at, &here) == 0);
  do {
    unw_proc_info_t of;
    REQUIRE(unw_get_proc_info(&at, &of) == 0);
    w.begins.push_back(of.start_ip);
    // More frames than any stack here has: it goes round in circles.
    if (w.begins.size() > 1000) break;
  } while ((w.last = unw_step(&at)) > 0);
  return w;
}

// Has so many frames of its own above the walk.
[[gnu::noinline]] walk walk_from(int depth) {
  walk w = depth == 0 ? walk_up() : walk_from(depth - 1);
  asm volatile("" ::: "memory");  // no tail call
  return w;
}

void check_whole(const walk& w, int depth) {
  NOTE("depth: ", depth);
  CHECK(w.last == 0);
  REQUIRE(w.begins.size() > 2);
  CHECK(w.begins.back() == reinterpret_cast<unw_word_t>(&vigil::detail::stack_begins));
  CHECK(std::count(w.begins.begin(), w.begins.end(), reinterpret_cast<unw_word_t>(&walk_from)) ==
        depth + 1);
}

}  // namespace

TEST_SUITE("libunwind") {
  TEST_CASE("steps from any depth of a fiber to its first frame, and ends there") {
    in_virtual([] {
      std::size_t around = 0;  // frames that are not walk_from()'s
      for (int depth = 0; depth < 20; ++depth) {
        vigil::spawn([&] {
          const walk w = walk_from(depth);
          check_whole(w, depth);
          const std::size_t others = w.begins.size() - static_cast<std::size_t>(depth) - 1;
          if (depth == 0) around = others;
          CHECK(others == around);
        }).join();
      }
    });
  }

  TEST_CASE("a fiber that has moved between workers, and one on a stack that was used before") {
    in_runtime({.workers = {4}}, [] {
      for (int i = 0; i < rounds(40); ++i) {
        vigil::spawn([&] {
          vigil::this_fiber::yield();
          check_whole(walk_from(i), i);
        }).join();
      }
    });
  }

  TEST_CASE("the main fiber's stack ends as the others do") {
    vigil::testing::run_virtual([] { check_whole(walk_from(3), 3); });
  }
}
