// select: the case that is taken, and how often, as Go's chan_test.go and test/chan check
// it.
#include "core/chan/chan_test.hpp"

#include <array>
#include <optional>

using namespace vigil::testing_support;

TEST_SUITE("select") {
  TEST_CASE("takes the case that is ready, calls its function only, and returns its index") {
    in_virtual([] {
      const auto full = with_value(7);
      const auto empty = make_channel<int>();
      const auto room = make_channel<int>(1);
      std::string called;
      CHECK(select(on_recv(empty, [&](std::optional<int>) { called += "empty "; }),
                   on_recv(full,
                           [&](std::optional<int> v) {
                             CHECK(v == 7);
                             called += "full ";
                           }),
                   on_timeout(1s, [&] { called += "timeout "; })) == 1);
      CHECK(select(on_send(room, 3, [&] { called += "room "; }),
                   on_recv(empty, [&] { called += "empty "; })) == 0);
      CHECK(room.recv() == 3);
      CHECK(select(on_recv(empty), otherwise([&] { called += "otherwise"; })) == 1);
      CHECK(called == "full room otherwise");
      check_nobody_waits(empty);
    });
  }

  TEST_CASE("waits for the first case that becomes ready and leaves no trace of the others") {
    for_each_seed(10, [] {
      std::array<channel<int>, 3> in;
      std::array<channel<int>, 3> out;
      for (std::size_t i = 0; i < 3; ++i) {
        in[i] = make_channel<int>();
        out[i] = make_channel<int>();
      }
      const auto start = vigil::clock::now();
      for (std::size_t which = 0; which < 6; ++which) {
        go([&, which] {
          sleep_for(1s);
          if (which < 3) {
            in[which].send(static_cast<int>(which));
          } else {
            CHECK(out[which - 3].recv() == 50);
          }
        });
        std::optional<int> got;
        const auto keep = [&](std::optional<int> v) { got = v; };
        const std::size_t taken = select(on_recv(in[0], keep),
                                         on_recv(in[1], keep),
                                         on_recv(in[2], keep),
                                         on_send(out[0], 50),
                                         on_send(out[1], 50),
                                         on_send(out[2], 50));
        CHECK(taken == which);
        CHECK(got == (which < 3 ? std::optional<int>(static_cast<int>(which)) : std::nullopt));
        wipe_stack_below();
        for (std::size_t i = 0; i < 3; ++i) {
          check_nobody_waits(in[i]);
          check_nobody_waits(out[i]);
        }
      }
      CHECK(since(start) == 6s);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  // --- one instant

  // Go: TestNonblockSelectRace, TestNonblockSelectRace2.
  TEST_CASE("one of two is ready all the time, so otherwise is never taken") {
    channel<int> c1;
    channel<int> c2;
    std::vector<channel<int>> never;
    for (int i = 0; i < 100; ++i)
      never.push_back(make_channel<int>());
    std::atomic<int> wrong{0};
    const auto look = [&](int i) {
      vigil::case_list list;
      switch (i % 4) {
        case 0:
          if (select(on_recv(c1), on_recv(c2), otherwise()) == 2) ++wrong;
          return;
        case 1:
          if (select(on_recv(c1), on_recv(c2), on_timeout(0s)) == 2) ++wrong;
          return;
        case 2:
          if (select_ordered(on_recv(c2), on_recv(c1), otherwise()) == 2) ++wrong;
          return;
        default:
          // Gives a slow look the time that it needs.
          list.add(on_recv(c2));
          for (const auto& c : never)
            list.add(on_recv(c));
          list.add(on_recv(c1));
          const std::size_t otherwise_at = list.add(otherwise());
          if (select_ordered(list) == otherwise_at) ++wrong;
      }
    };
    race(
        many(20'000),
        [&](int) {
          c1 = make_channel<int>(1);
          c2 = make_channel<int>(1);
          c1.send(1);
        },
        look,
        [&](int i) {
          i % 3 == 0 ? c2.close() : c2.send(1);
          static_cast<void>(c1.try_recv());
        },
        [](int) {});
    CHECK(wrong == 0);
    // The same between fibers.
    in_runtime({.workers = {2, 4}}, [&] {
      for (int i = 0; i < many(2000); ++i) {
        c1 = make_channel<int>(1);
        c2 = make_channel<int>(1);
        c1.send(1);
        auto other = spawn([&] { look(i); });
        c2.send(1);
        static_cast<void>(c1.try_recv());
        other.join();
      }
    });
    CHECK(wrong == 0);
  }

  // The other way round: a send into one of the two is always possible.
  // Go: TestNonblockSelectRace, TestNonblockSelectRace2.
  TEST_CASE("one of two has room all the time, so otherwise is never taken") {
    channel<int> c1;
    channel<int> c2;
    std::atomic<int> wrong{0};
    race(
        many(20'000),
        [&](int) {
          c1 = make_channel<int>(1);
          c2 = make_channel<int>(1);
          c2.send(1);
        },
        [&](int) {
          if (select(on_send(c1, 2), on_send(c2, 2), otherwise()) == 2) ++wrong;
        },
        [&](int) {
          static_cast<void>(c2.try_recv());
          static_cast<void>(c1.try_send(1));
        },
        [](int) {});
    CHECK(wrong == 0);
  }

  TEST_CASE("select_ordered never prefers a case that became ready later") {
    channel<int> data;
    channel<int> done;
    vigil::case_list list;
    std::atomic<int> wrong{0};
    race(
        many(10'000),
        [&](int i) {
          data = make_channel<int>(1);
          done = make_channel<int>();
          list.clear();
          list.add(on_recv(data));
          // Gives a slow look the time that it needs.
          for (int k = 0; k < 20 * (i % 20); ++k)
            list.add(on_recv(make_channel<int>()));
          list.add(on_recv(done));
        },
        [&](int) {
          if (select_ordered(list) != 0) ++wrong;
        },
        [&](int) {
          static_cast<void>(data.try_send(1));
          done.close();
        },
        [](int) {});
    CHECK(wrong == 0);
  }

  TEST_CASE("two selects that wait for each other meet, in either direction") {
    for_each_seed(20, [] {
      const auto a = make_channel<int>();
      const auto b = make_channel<int>();
      int got = 0;
      auto f = spawn([&] { return select(on_send(a, 1), on_send(b, 2)); });
      auto g = spawn([&] {
        const auto keep = [&](std::optional<int> v) { got = v.value(); };
        return select(on_recv(b, keep), on_recv(a, keep));
      });
      const std::size_t sent = f.join();
      CHECK(g.join() == 1 - sent);
      CHECK(got == static_cast<int>(sent) + 1);
      check_nobody_waits(a);
      check_nobody_waits(b);
    });
  }

  TEST_CASE("selects over the same channels in opposite order do not lock each other out") {
    in_runtime({.workers = {2, 4}}, [] {
      const auto a = make_channel<int>();
      const auto b = make_channel<int>();
      const auto c = make_channel<int>();
      const int n = many(5000);
      std::atomic<int> balance{0};
      const auto stir = [&](bool forward) {
        for (int i = 0; i < n; ++i) {
          if (forward) {
            balance += select(on_send(a, i), on_send(b, i), on_send(c, i), on_timeout(10us)) != 3;
          } else {
            balance -= select(on_recv(c), on_recv(b), on_recv(a), on_timeout(10us)) != 3;
          }
        }
      };
      std::vector<vigil::fiber<>> all;
      for (int i = 0; i < 4; ++i)
        all.push_back(spawn(stir, i % 2 == 0));
      for (auto& f : all)
        f.join();
      CHECK(balance == 0);
    });
  }

  // --- the same channel several times

  // Go: TestSelfSelect.
  TEST_CASE("never receives its own value from an unbuffered channel") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      for (const std::size_t capacity : {0u, 10u}) {
        const auto c = make_channel<int>(capacity);
        std::vector<vigil::fiber<>> both;
        for (int p = 0; p < 2; ++p) {
          both.push_back(spawn([&, p] {
            for (int i = 0; i < many(1000); ++i) {
              const auto check = [&](std::optional<int> v) {
                if (capacity == 0) REQUIRE(v == 1 - p);
              };
              if (p == 0 || i % 2 == 0) {
                select(on_send(c, int{p}), on_recv(c, check));
              } else {
                select(on_recv(c, check), on_send(c, int{p}));
              }
            }
          }));
        }
        // Each meeting is a round of both, so they end together.
        for (auto& f : both)
          f.join();
      }
    });
  }

  // Go: TestSelfSelect; chan/select3.go: its own unbuffered channel.
  TEST_CASE("with a send and a receive on one unbuffered channel it waits for another") {
    in_virtual([] {
      const auto c = make_channel<int>();
      CHECK(waits([&] { select(on_send(c, 1), on_recv(c)); }));
      CHECK(select(on_send(c, 1), on_recv(c), otherwise()) == 2);
      auto f = spawn([&] { return select(on_send(c, 1), on_recv(c)); });
      settle();
      CHECK(c.recv() == 1);
      CHECK(f.join() == 0);
      auto g = spawn([&] { return select(on_send(c, 1), on_recv(c)); });
      settle();
      c.send(2);
      CHECK(g.join() == 1);
      check_nobody_waits(c);
    });
  }

  // Go: TestChanSendInterface.
  TEST_CASE("the same channel may stand in several cases and one of them gets the value") {
    for_each_seed(20, [] {
      const auto c = make_channel<int>();
      std::vector<int> got;
      const auto keep = [&](std::optional<int> v) { got.push_back(v.value_or(-1)); };
      auto f = spawn([&] { return select(on_recv(c, keep), on_recv(c, keep), on_recv(c, keep)); });
      settle();
      CHECK(c.try_send(5));
      CHECK_FALSE(c.try_send(6));
      CHECK(f.join() < 3);
      CHECK(got == std::vector{5});
      auto g = spawn([&] { return select(on_send(c, 7), on_send(c, 8), on_send(c, 9)); });
      settle();
      const int value = c.recv().value();
      CHECK(static_cast<int>(g.join()) == value - 7);
      CHECK_FALSE(c.try_recv());
      auto h = spawn([&] { return select(on_recv(c, keep), on_recv(c, keep)); });
      settle();
      c.close();
      CHECK(h.join() < 2);
      CHECK(got == std::vector{5, -1});
    });
  }
}
