// A run for whose start the memory does not suffice: run() throws, nothing has run, and
// the runtime can be run again or destroyed.
#include "support/in_runtime.hpp"

#ifndef VIGIL_TEST_UNDER_SANITIZER

#include "support/counted_new.hpp"

#include <cstddef>
#include <new>
#include <utility>

namespace {

using vigil::testing_support::at_allocation;
using vigil::testing_support::before_call;

// Fails the n-th allocation of the start of a run that has four workers. False if the
// start has fewer.
bool fails_at(std::size_t n) {
  vigil::options o;
  o.workers = 4;
  o.slow_fiber = std::chrono::hours(1);
  vigil::runtime rt(o);
  bool has_run = false;
  bool has_failed = false;
  at_allocation(n, [] { throw std::bad_alloc(); });
  try {
    rt.run([&] { has_run = true; });
  } catch (const std::bad_alloc&) {
    has_failed = true;
  }
  const bool was_reached = std::exchange(before_call, 0) == 0;
  CHECK(has_run != has_failed);
  bool runs_again = false;
  rt.run([&] { runs_again = true; });
  CHECK(runs_again);
  return was_reached;
}

}  // namespace

TEST_CASE("a run whose n-th allocation fails throws bad_alloc, and the next one runs") {
  std::size_t n = 1;
  while (fails_at(n))
    ++n;
  CHECK(n > 4);  // the threads of three further workers, and what comes before them
}

#endif
