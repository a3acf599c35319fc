// The parts that the tests of leaks have in common.
#pragma once

#include "core/machine/sanitizer.hpp"
#include "core/sched/wait/wake_list.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <vigil/inspect.hpp>
#include <vigil/leaks.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <exception>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace vigil::testing_support {

// ThreadSanitizer's build calls none certain. In AddressSanitizer's the frames are large,
// and keep old pointers, so some are only possible.
inline constexpr bool can_be_certain = VIGIL_TSAN == 0 && VIGIL_ASAN == 0;

using name_set = std::set<std::string>;

inline name_set names_of(const std::vector<inspect::stuck_fiber>& fibers) {
  name_set all;
  for (const inspect::stuck_fiber& f : fibers)
    all.insert(f.name);
  return all;
}

inline name_set joined(name_set a, const name_set& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// For messages.
inline std::string in_words(const name_set& names) {
  std::string all;
  for (const std::string& name : names)
    all += (all.empty() ? "" : " ") + name;
  return all;
}

// From the start of the process freed memory is overwritten at once, and the stacks of
// ended threads are given back: what is left there would make leaks less certain
// (docs/guide/testing.md).
inline constexpr const char* clean_memory =
    "glibc.malloc.perturb=85:glibc.malloc.tcache_count=0:glibc.pthread.stack_cache_size=0";

// Starts a fiber with this name.
template <class F>
void start(const char* name, F f) {
  go([name, f = std::move(f)]() mutable {
    this_fiber::set_name(name);
    f();
  });
}

// Runs f on a fiber of its own, so that nothing of it stays on the caller's stack, and
// lets all fibers do what they can.
template <class F>
void start_and_settle(F f) {
  go([f = std::move(f)]() mutable {
    this_fiber::set_name("parent");
    f();
  });
  testing::settle();
}

// Runs f on a new thread, and throws its exception here. glibc gives the thread another
// arena, so no pointer that earlier tests have left anywhere can come to point to a new
// channel.
template <class F>
void on_new_thread(F f) {
  std::exception_ptr error;
  std::thread([&f, &error] {
    try {
      f();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error != nullptr) std::rethrow_exception(error);
}

// Runs the body on virtual time. The locks that its fibers wait for at its end are given
// up, which nothing else ends.
template <class F>
void in_leaky_virtual(F body) {
  inspect::install();
  testing::virtual_options o;
  o.runtime.on_unhandled = +[](std::exception_ptr) {};
  on_new_thread([&] {
    in_virtual(o, [&body] {
      body();
      for (;;) {
        detail::wake_list claimed;
        detail::run_of(*detail::current_scheduler()).deadlocks.claim_lock_waits(claimed);
        if (claimed.empty()) return;
        claimed.deliver();
        testing::settle();
      }
    });
  });
}

// Looks again if none is certain, as when a busy machine has kept a thread from stopping
// in time.
inline inspect::stuck_report find_stuck() {
  inspect::stuck_report r = inspect::find_stuck_fibers();
  for (int i = 0; VIGIL_TSAN == 0 && i < 100 && !r.why_none_certain.empty(); ++i)
    r = inspect::find_stuck_fibers();
  return r;
}

// The fibers of exactly these names are certain; where that cannot be, no others are, and
// these are possible.
inline void check_certain(const inspect::stuck_report& r, const name_set& expected) {
  NOTE(r.text);
  if (can_be_certain) {
    CHECK(r.why_none_certain == "");
    CHECK(in_words(names_of(r.certain)) == in_words(expected));
  } else {
    const name_set certain = names_of(r.certain);
    const name_set all = joined(certain, names_of(r.possible));
    CHECK(std::includes(expected.begin(), expected.end(), certain.begin(), certain.end()));
    CHECK(std::includes(all.begin(), all.end(), expected.begin(), expected.end()));
  }
}

}  // namespace vigil::testing_support
