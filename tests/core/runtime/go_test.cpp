// go, and the limits on fibers and their stacks.
#include "core/runtime/runtime_test.hpp"

#include <functional>

using namespace vigil::testing_support;
using vigil::go;

TEST_SUITE("go") {
  TEST_CASE("starts a fiber that runs once its creator gives up the worker") {
    in_virtual([] {
      bool ran = false;
      go([&] { ran = true; });
      CHECK_FALSE(ran);
      vigil::testing::settle();
      CHECK(ran);
    });
  }

  TEST_CASE("copies and moves any number of arguments into the fiber") {
    in_virtual([] {
      std::string seen;
      go([&](std::string a) { seen += a; }, std::string("a"));
      vigil::testing::settle();
      go([&](std::string a, int b) { seen += a + std::to_string(b); }, std::string("b"), 1);
      vigil::testing::settle();
      go(
          [&](int a, int b, std::unique_ptr<int> c, int d) {
            seen += std::to_string(a + b + *c + d);
          },
          1,
          2,
          std::make_unique<int>(3),
          4);
      vigil::testing::settle();
      CHECK(seen == "ab110");
    });
  }

  // Go: TestGoNil.
  TEST_CASE("an empty function is refused at the call and starts nothing") {
    in_virtual([] {
      void (*none)() = nullptr;
      CHECK_THROWS_AS(go(none), std::invalid_argument);
      CHECK_THROWS_AS(go(std::function<void()>()), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(spawn(none)), std::invalid_argument);
      CHECK(vigil::stats().fibers_alive == 1);
    });
  }

  TEST_CASE("a thread without a runtime is referred to runtime::go") {
    try {
      go([] {});
      FAIL("go outside a runtime did not throw");
    } catch (const vigil::wrong_place& e) {
      CHECK(std::string(e.what()).find("runtime::go") != std::string::npos);
    }
    CHECK_THROWS_AS(static_cast<void>(spawn([] {})), vigil::wrong_place);
  }

  TEST_CASE("a stack size out of range is refused and starts nothing") {
    in_virtual([] {
      const auto try_size = [](std::size_t size) {
        static_cast<void>(spawn(vigil::fiber_options{.stack_size = size, .name = {}}, [] {}));
      };
      CHECK_THROWS_AS(try_size(1), std::invalid_argument);
      CHECK_THROWS_AS(try_size(16 * 1024 - 1), std::invalid_argument);
      CHECK_THROWS_AS(try_size(std::size_t{1} << 40), std::invalid_argument);
      CHECK_THROWS_AS(try_size(SIZE_MAX), std::invalid_argument);
      CHECK(vigil::stats().fibers_alive == 1);
      try_size(16 * 1024);
      try_size(1024 * 1024);
    });
  }

  TEST_CASE("captures larger than half the stack are refused, with the remedy in the message") {
    in_virtual([] {
      struct {
        char room[100'000] = {};
      } large;
      try {
        go([large] { static_cast<void>(large); });
        FAIL("captures of 100 kB on a stack of 128 KiB were taken");
      } catch (const std::invalid_argument& e) {
        CHECK(std::string(e.what()).find("fiber_options::stack_size") != std::string::npos);
      }
      auto f = spawn(vigil::fiber_options{.stack_size = 1 << 20, .name = {}},
                     [large] { return large.room[5]; });
      CHECK(f.join() == 0);
    });
  }

  TEST_CASE("takes a name and a stack size, with any number of arguments") {
    in_virtual([] {
      std::string seen;
      const auto note = [&seen](auto... numbers) {
        seen += std::string(vigil::this_fiber::name()) + std::to_string(sizeof...(numbers)) + " ";
      };
      const vigil::fiber_options named{.stack_size = 1 << 20, .name = "a"};
      go(named, note);
      vigil::testing::settle();
      go({.name = "b"}, note, 1);
      vigil::testing::settle();
      go({.name = "c"}, note, 1, 2, 3, 4, 5, 6, 7, 8);
      vigil::testing::settle();
      go(named, note, 1, 2, 3, 4, 5, 6, 7, 8, 9);
      vigil::testing::settle();
      CHECK(seen == "a0 b1 c8 a9 ");
    });
  }

  TEST_CASE("many fibers one after the other reuse their stacks") {
    in_runtime({.workers = {2}}, [] {
      const auto before = vigil::stats().stack_bytes_mapped;
      std::atomic<int> ran{0};
      const int n = rounds(200'000);
      for (int i = 0; i < n; ++i) {
        go([&] { ran.fetch_add(1); });
        if (i % 64 == 0) vigil::this_fiber::yield();
        while (ran.load() < i - 1000)
          vigil::this_fiber::yield();
      }
      while (ran.load() != n)
        vigil::this_fiber::yield();
      CHECK(vigil::stats().stack_bytes_mapped < before + (std::size_t{1} << 30));
      CHECK(vigil::stats().fibers_started >= static_cast<std::uint64_t>(n));
    });
  }
}

TEST_SUITE("max_fibers and max_stack_bytes") {
  TEST_CASE("one fiber too many is refused by name and a slot becomes free when one ends") {
    vigil::testing::virtual_options how;
    how.runtime.max_fibers = 3;
    in_virtual(how, [] {
      auto a = spawn([] { sleep_for(1s); });
      auto b = spawn([] { sleep_for(2s); });
      try {
        go([] {});
        FAIL("a fourth fiber was started");
      } catch (const vigil::limit_reached& e) {
        CHECK(std::string(e.what()).find("options::max_fibers") != std::string::npos);
      }
      a.join();
      auto c = spawn([] { return 1; });
      CHECK(c.join() == 1);
      b.join();
    });
  }

  TEST_CASE("stack memory is counted by whole stacks and given back") {
    vigil::testing::virtual_options how;
    how.runtime.max_stack_bytes = 4 * 1024 * 1024;
    how.runtime.main_stack_size = 1024 * 1024;
    in_virtual(how, [] {
      const auto two = vigil::fiber_options{.stack_size = 2 * 1024 * 1024, .name = {}};
      auto a = spawn(two, [] { sleep_for(1s); });
      try {
        static_cast<void>(spawn(two, [] {}));
        FAIL("5 MiB of stacks were given out of 4");
      } catch (const vigil::limit_reached& e) {
        CHECK(std::string(e.what()).find("options::max_stack_bytes") != std::string::npos);
      }
      a.join();
      spawn(two, [] {}).join();
    });
  }

  TEST_CASE("callbacks run on the reserved runner when no fiber can be had") {
    vigil::testing::virtual_options how;
    how.runtime.max_stack_bytes = 1024 * 1024 + 3 * 128 * 1024;
    in_virtual(how, [] {
      int runs = 0;
      auto hog = spawn([] { sleep_for(100s); });
      for (int i = 0; i < 10; ++i) {
        vigil::after_func(1s, [&] {
          sleep_for(1s);  // keeps its stack: the next fiber needs another
          ++runs;
        });
      }
      sleep_for(50s);
      CHECK(runs == 10);
      hog.request_stop();
    });
  }

  TEST_CASE("a due callback gets the stack of a fiber that ends") {
    vigil::testing::virtual_options how;
    how.runtime.max_stack_bytes = 1024 * 1024 + 3 * 128 * 1024;
    in_virtual(how, [] {
      bool ran = false;
      auto hog = spawn([] { sleep_for(10s); });
      vigil::after_func(1s, [] { sleep_for(100s); });  // keeps the reserved stack
      vigil::after_func(2s, [&] { ran = true; });
      sleep_for(5s);
      CHECK_FALSE(ran);
      hog.join();
      sleep_for(1s);
      CHECK(ran);
    });
  }
}
