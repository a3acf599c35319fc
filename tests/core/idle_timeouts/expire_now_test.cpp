// timeout_list: expire_now.
#include "core/idle_timeouts/idle_timeouts_test.hpp"
#include "core/time/timer_stress.hpp"
#include "support/child.hpp"

#include <algorithm>
#include <cstdio>

using namespace vigil::testing_support;

TEST_SUITE("timeout_list") {
  TEST_CASE("expire_now puts off an entry whose earlier on_expire is running") {
    in_virtual([] {
      const instant start = now();
      std::vector<std::pair<int, std::chrono::nanoseconds>> begun;
      std::optional<timeout_list> l;
      l.emplace(10ms, [&](entry& e) {
        begun.emplace_back(id_of(e), since(start));
        if (begun.size() > 1) return;
        l->add(e);
        sleep_for(5ms);
      });
      connection slow{0};
      connection other{1};
      l->add(slow.idle);
      sleep_for(1ms);
      l->add(other.idle);
      sleep_for(9ms);
      settle();
      CHECK(l->size() == 2);
      CHECK(l->expire_now() == 1);
      CHECK(l->size() == 1);
      sleep_for(1s);
      CHECK(begun == decltype(begun){{0, 10ms}, {1, 10ms}, {0, 20ms}});
    });
  }

  TEST_CASE("expire_now expires all in the order of their last touch, on the caller's fiber") {
    in_virtual([] {
      ids seen;
      std::optional<timeout_list> l;
      bool is_over = false;
      const std::uint64_t me = vigil::this_fiber::id();
      l.emplace(1h, [&](entry& e) {
        if (!is_over) CHECK(vigil::this_fiber::id() == me);
        CHECK_FALSE(e.is_linked());
        seen.push_back(id_of(e));
        if (id_of(e) < 3) l->add(e);  // is not called again
      });
      std::deque<connection> c;
      for (int i = 0; i < 500; ++i) {
        c.emplace_back(i);
        l->add(c.back().idle);
        sleep_for(1ms);
      }
      c[0].idle.touch();
      c[7].idle.touch(now() - 1ms);  // as old as the last
      CHECK(l->expire_now() == 500);
      is_over = true;
      REQUIRE(seen.size() == 500);
      CHECK(seen.front() == 1);
      CHECK(seen.back() == 0);
      ids sorted = seen;
      std::sort(sorted.begin(), sorted.end());
      CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
      CHECK(l->size() == 3);
      seen.clear();
      sleep_for(1h);
      settle();
      CHECK(seen.size() >= 3);
      l.reset();
    });
  }

  TEST_CASE("expire_now of an empty list calls nothing; a stop leaves the rest in the list") {
    in_virtual([] {
      const instant start = now();
      int calls = 0;
      std::chrono::nanoseconds last{};
      timeout_list l(1h, [&](entry&) {
        last = since(start);
        if (++calls == 2) sleep_for(1h);
      });
      CHECK(l.expire_now() == 0);
      std::array<connection, 4> c;
      for (connection& each : c) {
        l.add(each.idle);
        sleep_for(1ns);
      }
      auto f = vigil::spawn([&] { l.expire_now(); });
      sleep_for(1ms);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      const auto interrupted = since(start);
      CHECK(calls == 2);
      CHECK(l.size() == 2);
      CHECK(c[3].idle.is_linked());
      sleep_for(2h);
      CHECK(calls == 4);
      CHECK(last == interrupted + 1h);  // put off
    });
  }

  TEST_CASE("expire_now that an exception of on_unhandled leaves puts off the rest") {
    vigil::testing::virtual_options how;
    how.runtime.on_unhandled = [](std::exception_ptr e) { std::rethrow_exception(e); };
    in_virtual(how, [] {
      int calls = 0;
      timeout_list l(1h, [&](entry&) {
        if (++calls == 1) throw 1;
      });
      std::array<connection, 3> c;
      for (connection& each : c)
        l.add(each.idle);
      CHECK_THROWS_AS(l.expire_now(), int);
      CHECK(l.size() == 2);
      sleep_for(2h);
      CHECK(calls == 3);
      CHECK(l.size() == 0);
    });
  }

  TEST_CASE("expire_now goes on in the grace after the exception of the root context's end") {
    vigil::testing::virtual_options how;
    how.runtime.grace = 5s;
    std::size_t expired = 0;
    in_virtual(how, [&] {
      vigil::go([&] {
        timeout_list l(1h, [](entry&) { sleep_for(1ms, vigil::background()); });
        std::array<connection, 3> c;
        for (connection& each : c)
          l.add(each.idle);
        CHECK_THROWS_AS(sleep_for(1h, vigil::background()), vigil::cancelled);
        expired = l.expire_now();
      });
      sleep_for(5ms);
    });
    CHECK(expired == 3);
  }

  TEST_CASE("expire_now whose on_expire destroys the list ends there") {
    in_virtual([] {
      std::optional<timeout_list> l;
      int calls = 0;
      l.emplace(1h, [&](entry&) {
        ++calls;
        l.reset();
      });
      std::array<connection, 4> c;
      for (connection& each : c)
        l->add(each.idle);
      l->expire_now();
      CHECK(calls == 1);
      for (connection& each : c)
        CHECK_FALSE(each.idle.is_linked());
    });
  }
}
