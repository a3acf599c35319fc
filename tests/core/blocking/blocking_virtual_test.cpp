// blocking() on virtual time.
#include "core/blocking/blocking_helpers.hpp"
#include "support/at_rest.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

vigil::testing::virtual_options with_seeded_threads(std::size_t n, std::uint64_t seed = 1) {
  vigil::testing::virtual_options how;
  how.seed = seed;
  how.runtime.blocking_threads = n;
  return how;
}

}  // namespace

TEST_SUITE("blocking on virtual time") {
  TEST_CASE("time stands still while a function runs") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      bool woke = false;
      auto sleeper = vigil::spawn([&woke] {
        vigil::sleep_for(1ns);
        woke = true;
      });
      // Until no fiber has anything else to do, and time could go on.
      vigil::blocking([&all = *vigil::detail::current_scheduler()] { wait_until_at_rest(all); });
      CHECK(vigil::clock::now() == start);
      CHECK_FALSE(woke);
      sleeper.join();
      CHECK(since(start) == 1ns);
    });
  }

  TEST_CASE("a deadline does not come while its function runs") {
    in_virtual([] {
      CHECK(vigil::blocking_for(1ns, [&all = *vigil::detail::current_scheduler()] {
              wait_until_at_rest(all);
              return 1;
            }) == 1);
    });
  }

  TEST_CASE("results arrive together, when nothing else can run, in the seed's order") {
    const auto order = [](std::uint64_t seed) {
      std::string text;
      in_virtual(with_seeded_threads(4, seed), [&] {
        std::vector<vigil::fiber<>> callers;
        bool others_ran = false;
        std::atomic<int> turn{3};
        for (int i = 0; i < 4; ++i) {
          callers.push_back(vigil::spawn([&, i] {
            // The last of them returns first, which changes nothing.
            vigil::blocking([i, &turn] {
              while (turn.load() != i)
                std::this_thread::yield();
              turn = i - 1;
            });
            CHECK(others_ran);
            text += static_cast<char>('a' + i);
          }));
        }
        auto busy = vigil::spawn([&] {
          for (int i = 0; i < 1000; ++i)
            vigil::this_fiber::yield();
          others_ran = true;
        });
        for (auto& c : callers)
          c.join();
        busy.join();
      });
      return text;
    };
    bool differ = false;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const std::string first = order(seed);
      CHECK(first.size() == 4);
      CHECK(order(seed) == first);
      differ = differ || first != order(1);
    }
    CHECK(differ);
  }

  TEST_CASE("settle waits for functions as well") {
    in_virtual([] {
      bool done = false;
      vigil::go([&done] {
        vigil::blocking([&all = *vigil::detail::current_scheduler()] { wait_until_at_rest(all); });
        done = true;
      });
      vigil::testing::settle();
      CHECK(done);
    });
  }
}
