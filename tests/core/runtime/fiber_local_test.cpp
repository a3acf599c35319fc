// fiber_local: one value for each fiber and callback.
#include "core/runtime/runtime_test.hpp"
#include "core/sched/call/park.hpp"

#include <cstdio>
#include <cstdlib>

using namespace vigil::testing_support;
namespace this_fiber = vigil::this_fiber;

TEST_SUITE("fiber_local") {
  vigil::fiber_local<int> number(7);
  vigil::fiber_local<std::string> text;

  struct ordered {
    std::vector<int>* into = nullptr;
    int value = 0;

    ~ordered() {
      if (into != nullptr) into->push_back(value);
    }
  };

  vigil::fiber_local<ordered> first;
  vigil::fiber_local<ordered> second;

  TEST_CASE("each fiber has its own value, made at its first use") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      *number = 100;
      std::vector<vigil::fiber<>> fibers;
      for (int i = 0; i < 50; ++i) {
        fibers.push_back(spawn([i] {
          REQUIRE(*number == 7);
          *number = i;
          *text = std::to_string(i);
          for (int round = 0; round < 20; ++round) {
            this_fiber::yield();
            REQUIRE(*number == i);
            REQUIRE(text->size() == std::to_string(i).size());
          }
        }));
      }
      for (auto& f : fibers)
        f.join();
      CHECK(*number == 100);
      CHECK(text->empty());
    });
    CHECK_THROWS_AS(*number, vigil::wrong_place);
  }

  TEST_CASE("values are destroyed with their fiber in the reverse order of first use") {
    in_virtual([] {
      std::vector<int> died;
      auto f = spawn([&] {
        second->into = &died;
        second->value = 2;
        first->into = &died;
        first->value = 1;
      });
      f.join();
      CHECK(died == std::vector<int>{1, 2});
    });
  }

  TEST_CASE("values of a callback are destroyed at its end although its runner goes on") {
    in_virtual([] {
      std::vector<int> died;
      for (int i = 0; i < 3; ++i) {
        vigil::after_func(1s, [&died, i] {
          CHECK(first->into == nullptr);
          first->into = &died;
          first->value = i;
        });
      }
      sleep_for(2s);
      CHECK(died.size() == 3);
    });
  }

  vigil::fiber_local<std::unique_ptr<int>> owner;
  vigil::fiber_local<std::vector<std::unique_ptr<int>>> owners;

  TEST_CASE("a value may be of a type that cannot be copied") {
    in_virtual([] {
      spawn([] {
        CHECK(*owner == nullptr);
        *owner = std::make_unique<int>(5);
        owners->push_back(std::move(*owner));
        CHECK(*owners->front() == 5);
      }).join();
      CHECK(owners->empty());
    });
  }

  void make_the_other(bool is_other);
  std::atomic<int> ghosts_died{0};

  // Its destructor makes the other's value anew. It allocates from a static pool: the
  // values left at the end are not destroyed, and a leak checker would report them.
  struct haunted {
    bool lives = false;
    bool is_other = false;

    ~haunted() {
      if (!lives) return;
      if (++ghosts_died > 1000) std::abort();
      make_the_other(!is_other);
    }

    static void* operator new(std::size_t) {
      static std::byte rooms[64][sizeof(haunted)];
      static std::size_t used = 0;
      if (used == 64) std::abort();
      return rooms[used++];
    }

    static void operator delete(void*) {}
  };

  vigil::fiber_local<haunted> ghost;
  vigil::fiber_local<haunted> other_ghost;

  void make_the_other(bool is_other) {
    haunted& made = is_other ? *other_ghost : *ghost;
    made.is_other = is_other;
    made.lives = true;
  }

  TEST_CASE("child: values that make each other anew" * doctest::skip()) {
    in_virtual([] {
      spawn([] { make_the_other(false); }).join();
      const int of_the_fiber = ghosts_died.load();
      vigil::after_func(1ms, [] { make_the_other(true); });
      sleep_for(2ms);
      std::printf("%d and %d have died\n", of_the_fiber, ghosts_died.load() - of_the_fiber);
    });
  }

  TEST_CASE("destructors that make each other's values anew end after four rounds") {
    const child_result r = run_child("child: values that make each other anew");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK_MESSAGE(r.says("4 and 4 have died"), r.output);
  }
}
