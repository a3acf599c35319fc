// A hundred thousand fibers that wait under one context.
#include "core/cancel/cancel_test.hpp"
#include "support/memory.hpp"

#include <algorithm>

namespace {

using namespace vigil::testing_support;

struct one_of_many {
  std::atomic<int> waits{0};
  std::atomic<int> woken{0};
};

template <class F>
bool all_of(const std::vector<one_of_many>& many, F f) {
  return std::all_of(many.begin(), many.end(), f);
}

// Waits until `holds()`; if it never does, the check that follows says so.
template <class F>
void patiently(F holds) {
  const auto start = vigil::clock::now();
  while (!holds() && since(start) < 10min)
    sleep_for(5ms);
}

// wait(ctx) returns when ctx is done; the result says whether it ended as it should.
template <class F>
void cancel_many(F wait) {
  const auto n = static_cast<std::size_t>(stacks_at_once(rounds(100'000)));
  std::vector<one_of_many> many(n);
  vigil::options settings;
  settings.warm_stacks = 0;  // their memory is given back at once
  in_runtime({.workers = {2}, .settings = settings}, [&] {
    const std::size_t before = resident_bytes();
    auto it = vigil::with_cancel(vigil::background());
    for (one_of_many& each : many) {
      vigil::go([&each, &wait, ctx = it.ctx] {
        each.waits.store(1);
        if (wait(ctx)) each.woken.fetch_add(1);
      });
    }
    patiently([&] { return all_of(many, [](const auto& m) { return m.waits == 1; }); });
    CHECK(all_of(many, [](const auto& m) { return m.waits == 1 && m.woken == 0; }));
    const std::size_t waiting = resident_bytes();

    it.cancel();
    patiently([&] { return all_of(many, [](const auto& m) { return m.woken != 0; }); });
    patiently([] { return vigil::stats().fibers_alive == 1; });
    CHECK(vigil::stats().fibers_alive == 1);
    CHECK(all_of(many, [](const auto& m) { return m.woken == 1; }));

#ifndef VIGIL_TEST_UNDER_SANITIZER
    if (n < 100'000) return;              // some stacks are kept, however few there were
    CHECK(waiting - before >= n * 2048);  // this much has to be returned
    const auto is_given_back = [&] { return resident_bytes() <= before + (waiting - before) / 20; };
    patiently(is_given_back);
    CHECK(is_given_back());
#else
    static_cast<void>(before);
    static_cast<void>(waiting);
#endif
  });
}

}  // namespace

TEST_SUITE("context with a hundred thousand waiters") {
  TEST_CASE("a cancel readies each receiver of done() once, and their memory is returned") {
    cancel_many([](const context& ctx) { return !ctx.done().recv(); });
  }

  TEST_CASE("a cancel readies each sleeper once, and their memory is returned") {
    cancel_many([](const context& ctx) {
      try {
        sleep_for(24h, ctx);
      } catch (const cancelled&) {
        return true;
      }
      return false;
    });
  }
}
