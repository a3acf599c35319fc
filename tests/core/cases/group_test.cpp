// The cases of groups, and group_of::next().
#include "core/cases/cases_test.hpp"

using namespace vigil::testing_support;
using vigil::group;
using vigil::group_of;
using vigil::on_next;
using vigil::on_wait;

namespace {

void add(group_of<int>& g, std::chrono::milliseconds time, int result) {
  g.go([time, result](const vigil::context& ctx) {
    sleep_for(time, ctx);
    return result;
  });
}

}  // namespace

TEST_SUITE("group cases") {
  TEST_CASE("next() gives the results in the order in which the functions return") {
    in_virtual([] {
      group_of<int> g;
      CHECK(g.next() == std::nullopt);
      for (int i = 0; i < 5; ++i)
        add(g, (5 - i) * 1s, i);
      std::vector<int> order;
      while (const auto r = g.next())
        order.push_back(*r);
      CHECK(order == std::vector<int>{4, 3, 2, 1, 0});
      CHECK(g.next() == std::nullopt);
      // The group goes on, and wait() has what is left.
      add(g, 3s, 7);
      add(g, 1s, 8);
      add(g, 2s, 9);
      CHECK(g.next() == 8);
      CHECK(g.wait() == std::vector<int>{7, 9});
      CHECK(g.next() == std::nullopt);
      CHECK(g.wait().empty());
    });
  }

  TEST_CASE("next_for and next_until tell a timeout from the end") {
    in_virtual([] {
      group_of<std::unique_ptr<int>> g;
      g.go([] {
        sleep_for(2s);
        return std::make_unique<int>(3);
      });
      CHECK(g.next_for(0s).is_timeout());
      CHECK(g.next_for(-1s).is_timeout());
      CHECK(g.next_for(1s).is_timeout());
      auto got = g.next_until(vigil::clock::now() + 1h);
      REQUIRE(got);
      CHECK(**got == 3);
      CHECK(g.next_for(1h).is_closed());
      g.go([] {
        sleep_for(1h);
        return nullptr;
      });
      const auto ctx = vigil::with_timeout(vigil::background(), 1s);
      CHECK_THROWS_AS(g.next(ctx.ctx), vigil::cancelled);
      CHECK(g.next().has_value());
    });
  }

  TEST_CASE("next() throws the first error once the results before it were taken") {
    in_virtual([] {
      group_of<int> g;
      add(g, 1s, 1);
      g.go([]() -> int {
        sleep_for(2s);
        throw std::runtime_error("x");
      });
      add(g, 3s, 3);
      CHECK(g.next() == 1);
      CHECK_THROWS_AS(g.next(), std::runtime_error);
      CHECK_THROWS_AS(g.next(), std::runtime_error);
      CHECK_THROWS_AS(g.wait(), std::runtime_error);
    });
    in_virtual([] {
      group_of<int> g;
      add(g, 1s, 1);
      add(g, 3s, 3);
      CHECK(g.next() == 1);
      g.cancel();
      CHECK_THROWS_AS(g.next(), vigil::cancelled);
    });
  }

  TEST_CASE("a case takes the next result, beside other cases") {
    in_virtual([] {
      group_of<int> g;
      add(g, 2s, 1);
      add(g, 1s, 2);
      const auto c = make_channel<int>();
      std::vector<int> got;
      bool is_over = false;
      const auto take = [&](std::optional<int> r) {
        if (r) {
          got.push_back(*r);
        } else {
          is_over = true;
        }
      };
      CHECK(select(on_next(g, take), otherwise()) == 1);
      CHECK(select(on_next(g, take), on_timeout(500ms)) == 1);
      while (!is_over)
        CHECK(select(on_recv(c), on_next(g, take)) == 1);
      CHECK(got == std::vector<int>{2, 1});
      CHECK(select(on_next(g)) == 0);
      // The same group twice takes each result once.
      add(g, 1s, 3);
      got.clear();
      select(on_next(g, take), on_next(g, take));
      CHECK(got == std::vector<int>{3});
      CHECK(select(on_next(g), on_next(g)) < 2);
    });
  }

  TEST_CASE("a result that comes as another case is taken waits for the next call") {
    for_each_seed(20, [] {
      group_of<int> g;
      const auto c = make_channel<int>();
      add(g, 1s, 1);
      auto sends = spawn([&] {
        sleep_for(1s);
        c.send(1);
      });
      bool has_result = false;
      select(on_next(g, [&](std::optional<int> r) { has_result = r.has_value(); }), on_recv(c));
      if (has_result) {
        CHECK(c.recv() == 1);
      } else {
        CHECK(g.next() == 1);
      }
      sends.join();
      CHECK(g.next() == std::nullopt);
    });
  }

  TEST_CASE("what a case of results throws, and what a stop leaves") {
    in_virtual([] {
      group_of<int> g;
      g.go([]() -> int { throw std::runtime_error("x"); });
      CHECK_THROWS_AS(select(on_next(g), on_timeout(1h)), std::runtime_error);
      group_of<int> h;
      add(h, 1h, 5);
      auto waits = spawn([&] { select(on_next(h)); });
      settle();
      waits.request_stop();
      CHECK_THROWS_AS(waits.join(), vigil::cancelled);
      CHECK(h.next() == 5);
    });
  }

  TEST_CASE("a case waits for the end of all fibers, as wait() does") {
    in_virtual([] {
      group g;
      int ended = 0;
      for (int i = 1; i <= 3; ++i) {
        g.go([&, i] {
          sleep_for(i * 1s);
          if (i == 3) g.go([&] { ++ended; });
          ++ended;
        });
      }
      CHECK(select(on_wait(g), otherwise()) == 1);
      CHECK(select(on_wait(g), on_timeout(1s)) == 1);
      bool called = false;
      CHECK(select(on_timeout(1h), on_wait(g, [&] { called = true; })) == 1);
      CHECK(called);
      CHECK(ended == 4);
      CHECK(g.context().is_done());
      CHECK_THROWS_AS(g.go([] {}), std::logic_error);
      CHECK(select(on_wait(g), on_wait(g)) < 2);
    });
  }

  TEST_CASE("nothing starts between the end of the last fiber and the select's return") {
    in_virtual([] {
      group g;
      g.go([] { sleep_for(1s); });
      auto waits = spawn([&] { select(on_wait(g), on_timeout(1h)); });
      settle();
      // The last fiber ends before this one runs again, and has claimed the select.
      sleep_for(1s);
      settle();
      CHECK_THROWS_AS(g.go([] {}), std::logic_error);
      waits.join();
    });
  }

  TEST_CASE("a case of a group throws its first error, or gives all results") {
    in_virtual([] {
      group g;
      g.go([] { throw std::runtime_error("x"); });
      g.go([] { sleep_for(1h); });
      bool called = false;
      CHECK_THROWS_AS(select(on_wait(g, [&] { called = true; })), std::runtime_error);
      CHECK_FALSE(called);
      group_of<int> all;
      add(all, 2s, 1);
      add(all, 1s, 2);
      std::vector<int> got;
      select(on_wait(all, [&](std::vector<int> r) { got = std::move(r); }), on_timeout(1h));
      CHECK(got == std::vector<int>{1, 2});
      group_of<int> partly;
      add(partly, 1h, 1);
      partly.cancel();
      CHECK_THROWS_AS(select(on_wait(partly)), vigil::cancelled);
    });
  }

  TEST_CASE("a group may be destroyed once its case was taken") {
    in_runtime({}, [] {
      repeat(rounds(300), [](int i) {
        const auto never = make_channel<int>();
        group_of<int> g;
        g.go([i] { return i; });
        group h;
        h.go([] {});
        select(on_recv(never), on_wait(h));
        int got = -1;
        select(on_recv(never), on_next(g, [&](std::optional<int> r) { got = r.value_or(-2); }));
        CHECK(got == i);
      });
    });
  }

  TEST_CASE("every result is taken once, whatever else a select waits for") {
    for_each_seed(30, [] {
      group_of<int> g(group_of<int>::options{.limit = 3});
      const auto c = make_channel<int>();
      std::vector<int> seen(40);
      seeded dice(7);
      int started = 0;
      int taken = 0;
      while (taken < 40) {
        if (started < 40 && dice.below(2) == 0) {
          const auto time = std::chrono::milliseconds(dice.below(5));
          if (g.try_go([time, started] {
                sleep_for(time);
                return started;
              })) {
            ++started;
          }
        }
        if (taken == started) {
          vigil::this_fiber::yield();  // the places are given back after the results
          continue;
        }
        select(on_next(g,
                       [&](std::optional<int> r) {
                         if (!r) return;
                         ++seen[static_cast<std::size_t>(*r)];
                         ++taken;
                       }),
               on_recv(c),
               on_timeout(std::chrono::milliseconds(dice.below(3))));
      }
      for (const int n : seen)
        CHECK(n == 1);
      CHECK(g.wait().empty());
    });
  }
}
