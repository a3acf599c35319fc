// debug::holders: what keeps a program from ending.
#include "support/gate.hpp"
#include "support/in_runtime.hpp"

#include <vigil/error.hpp>
#include <vigil/timeout_list.hpp>

#include <string>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

// The text that debug::holders writes.
std::string holders_text() {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const memory = open_memstream(&text, &size);
  vigil::debug::holders(memory);
  std::fclose(memory);
  std::string copy(text, size);
  std::free(text);
  return copy;
}

}  // namespace

TEST_SUITE("debug::holders") {
  TEST_CASE("names fibers, referenced timers and functions on side pools, by kind") {
    in_virtual([] {
      const std::string nothing = holders_text();
      CHECK(nothing.find("fibers besides the main one: 0") != std::string::npos);
      CHECK(nothing.find("referenced timers: 0") != std::string::npos);
      CHECK(nothing.find("outside work: 0, of it functions on side pools: 0") != std::string::npos);
      // Due now, while the entry of its first deadline is still filed.
      auto due = vigil::after_func(1h, [] {});
      due.reset(0s);
      CHECK(holders_text().find("referenced timers: 1\n") != std::string::npos);
      // Most of them are in the heap: more than are visited under one hold of its lock.
      std::vector<vigil::timer> many;
      for (int i = 0; i < 999; ++i)
        many.push_back(vigil::after_func(1h, [] {}));
      CHECK(holders_text().find("referenced timers: 1000\n") != std::string::npos);
    });
    in_runtime({.workers = {1, 2}}, [] {
      auto waits = vigil::spawn([] {
        vigil::this_fiber::set_name("waits");
        vigil::sleep_for(1h);
      });
      gate inside;
      auto calls = vigil::spawn([&inside] {
        vigil::this_fiber::set_name("calls");
        vigil::blocking([&inside] { inside.wait(); });
      });
      auto once = vigil::after_func(1h, [] {});
      auto often = vigil::every(1h, [] {});
      auto unreferenced = vigil::after_func(1h, [] {});
      unreferenced.unref();
      auto stopped = vigil::after_func(1h, [] {});
      stopped.stop();
      inside.wait_until_entered();
      std::string text = holders_text();
      // Another worker may have the fiber and not have run it yet.
      while (text.find("(waits) [parked: sleep, ") == std::string::npos) {
        vigil::sleep_for(100us);
        text = holders_text();
      }
      CHECK(text.find("fibers besides the main one: 2") != std::string::npos);
      CHECK(text.find("referenced timers: 2") != std::string::npos);
      CHECK(text.find("every() at ") != std::string::npos);
      CHECK(text.find("holders_test.cpp:") != std::string::npos);
      CHECK(text.find("functions on side pools: 1") != std::string::npos);
      CHECK(text.find("a function on a side pool, called ") != std::string::npos);
      CHECK(text.find("(calls) at ") != std::string::npos);
      inside.open();
      calls.join();
      waits.request_stop();
      CHECK_THROWS_AS(waits.join(), vigil::cancelled);
      once.stop();
      often.stop();
      unreferenced.stop();
    });
  }
}
