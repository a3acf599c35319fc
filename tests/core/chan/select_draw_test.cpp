// select: how often each ready case is drawn, as Go's TestSelectFairness checks it.
#include "core/chan/chan_test.hpp"

#include <array>

using namespace vigil::testing_support;

TEST_SUITE("select") {
  // For every mix of kinds.
  // Go: TestSelectFairness.
  TEST_CASE("each ready case is drawn as often as the others, wherever it stands") {
    const int n = rounds(10'000);
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      in_virtual({.seed = seed, .runtime = {}}, [n] {
        const channel<int> nil;
        const auto never = make_channel<int>();
        const auto closed = closed_channel();
        std::array<int, 4> front{};
        for (int i = 0; i < n; ++i) {
          const auto full = with_value(1);
          ++front[select(on_recv(never), on_recv(nil), on_recv(full), on_recv(closed))];
        }
        CHECK(front[0] + front[1] == 0);
        check_share(front[2], n, 2);
        check_share(front[3], n, 2);

        std::vector<int> counts(5);
        for (int i = 0; i < n; ++i) {
          const auto full = with_value(1);
          const auto room = make_channel<int>(1);
          const auto met = make_channel<int>();
          auto peer = spawn([&] { static_cast<void>(met.recv_for(1ns)); });
          settle();
          const std::size_t taken = select(on_recv(full),
                                           on_send(never, 1),
                                           on_send(room, 1),
                                           on_recv(closed),
                                           on_send(met, 1),
                                           on_timeout(0s),
                                           on_recv(with_value(2)));
          constexpr std::array<std::size_t, 7> place{0, 9, 1, 2, 3, 9, 4};
          REQUIRE(place[taken] != 9);
          ++counts[place[taken]];
          peer.join();
        }
        CHECK(chi_square(counts) < 45.0);  // 4 degrees of freedom: 4 in 10^9
      });
    }
  }

  // Go: TestSelectFairness.
  TEST_CASE("draws evenly on real workers and on plain threads") {
    const auto draw = [] {
      const int n = rounds(10'000);
      const auto closed = closed_channel();
      std::vector<int> counts(3);
      int pairs = 0;
      std::size_t before = 9;
      for (int i = 0; i < n; ++i) {
        const std::size_t taken = select(on_recv(closed), on_recv(closed), on_recv(closed));
        ++counts[taken];
        pairs += taken == before ? 1 : 0;
        before = taken;
      }
      CHECK(chi_square(counts) < 42.0);  // 2 degrees of freedom: 1 in 10^9
      check_share(pairs, n, 3);          // one draw says nothing about the next
    };
    draw();
    in_runtime({.workers = {1, 2}}, draw);
  }

  // Go: TestSelectFairness.
  TEST_CASE("a hundred ready cases of a list are drawn evenly") {
    in_virtual([] {
      constexpr int cases = 100;
      const int n = rounds(40'000);
      vigil::case_list list;
      for (int i = 0; i < cases; ++i)
        list.add(on_recv(closed_channel()));
      std::vector<int> counts(cases);
      for (int i = 0; i < n; ++i)
        ++counts[select(list)];
      CHECK(chi_square(counts) < 195.0);  // 99 degrees of freedom: about 1 in 10^8
    });
  }

  TEST_CASE("one seed draws the same cases each time, another seed others") {
    const auto draws = [](std::uint64_t seed) {
      std::string text;
      in_virtual({.seed = seed, .runtime = {}}, [&] {
        const auto closed = closed_channel();
        for (int i = 0; i < 40; ++i)
          text +=
              static_cast<char>('a' + select(on_recv(closed), on_recv(closed), on_recv(closed)));
      });
      return text;
    };
    CHECK(draws(5) == draws(5));
    CHECK(draws(5) != draws(6));
  }

  TEST_CASE("a case that others keep ready does not hide one that becomes ready once") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto busy = make_channel<int>();
      const auto quit = make_channel<void>();
      for (int i = 0; i < 2; ++i) {
        go([busy] {
          for (;;)
            busy.send(1);
        });
      }
      go([quit] {
        for (int i = 0; i < 20; ++i)
          vigil::this_fiber::yield();
        quit.close();
      });
      bool done = false;
      while (!done)
        select(on_recv(busy), on_recv(quit, [&] { done = true; }));
    });
  }

  TEST_CASE("select_ordered takes the first ready case, every time") {
    in_virtual([] {
      const auto closed = closed_channel();
      const auto never = make_channel<int>();
      for (int i = 0; i < 200; ++i) {
        CHECK(select_ordered(on_recv(never), on_recv(closed), on_recv(closed)) == 1);
        CHECK(select_ordered(on_recv(closed), on_send(never, 1), on_recv(closed)) == 0);
        CHECK(select_ordered(otherwise(), on_recv(never), on_recv(closed)) == 2);
        CHECK(select_ordered(on_timeout(0s), on_recv(closed)) == 1);
        CHECK(select_ordered(on_recv(never), otherwise()) == 1);
      }
      vigil::case_list list;
      list.add(on_recv(never));
      list.add(on_recv(closed));
      list.add(on_recv(closed));
      for (int i = 0; i < 50; ++i)
        CHECK(select_ordered(list) == 1);
      // It waits like any other.
      go([never] {
        sleep_for(1s);
        never.send(3);
      });
      CHECK(select_ordered(on_recv(channel<int>()), on_recv(never), on_timeout(2s)) == 1);
    });
  }
}
