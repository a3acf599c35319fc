// The programs of these tests run as children, because a report goes to standard error.
#pragma once

#include "support/child.hpp"
#include "support/in_runtime.hpp"

#include <vigil/lock_check.hpp>

#include <atomic>
#include <mutex>
#include <string>

#include <doctest/doctest.h>

namespace lock_check_tests {

using namespace std::chrono_literals;
using namespace vigil::testing_support;

inline constexpr const char* report = "is about to wait";

inline unsigned count_of(const std::string& text, const std::string& part) {
  unsigned n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

inline std::atomic<int> steps{0};

// The places of the reports. Each does something last, so that its call is no jump.
[[gnu::noinline]] inline void locks_the_ledger(std::mutex& m) {
  m.lock();
  ++steps;
}

[[gnu::noinline]] inline void locks_the_journal(std::mutex& m) {
  m.lock();
  ++steps;
}

[[gnu::noinline]] inline void waits_for_the_post() {
  vigil::sleep_for(1ms);
  ++steps;
}

[[gnu::noinline]] inline void waits_for_the_bank() {
  vigil::sleep_for(1ms);
  ++steps;
}

// Virtual time has one worker, and the order of its fibers is the seed's.
template <class F>
void run_checked(F body) {
  vigil::lock_check::install();
  in_virtual(body);
}

inline child_result reported(const char* test_case, unsigned times) {
  const child_result child = run_child(test_case);
  CHECK(child.succeeded());
  CHECK(child.says("1 passed | 0 failed"));
  CHECK(count_of(child.output, report) == times);
  return child;
}

inline child_result quiet(const char* test_case) {
  return reported(test_case, 0);
}

}  // namespace lock_check_tests
