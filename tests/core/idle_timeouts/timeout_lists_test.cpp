#include "core/idle_timeouts/idle_timeouts_test.hpp"

#include <malloc.h>

using namespace vigil::testing_support;

namespace {

// Node's worked example, with its two lists: 100 ms at 0, and after 10 ms of work 100 ms
// and 200 ms.
struct worked_example {
  expiries seen;
  timeout_lists lists{[this](entry& e) { seen.add(id_of(e)); }};
  std::array<connection, 3> c{{{0}, {1}, {2}}};

  void begin() {
    lists.add(c[0].idle, 100ms);
    sleep_for(10ms);
    lists.add(c[1].idle, 100ms);
    lists.add(c[2].idle, 200ms);
  }
};

}  // namespace

TEST_SUITE("timeout_lists") {
  TEST_CASE("its size is the sum over however many lists there are") {
    in_virtual([] {
      timeout_lists lists([](entry&) {});
      std::deque<connection> c(300);
      for (std::size_t i = 0; i < c.size(); ++i) {
        CHECK(lists.size() == i);
        lists.add(c[i].idle, std::chrono::seconds(i / 2 + 1));
      }
      CHECK(lists.lists() == 150);
      CHECK(lists.size() == 300);
    });
  }

  TEST_CASE("timers of 100, 100 and 200 ms fire at 100, 110 and 210 with three wake-ups") {
    in_virtual([] {
      worked_example x;
      const std::uint64_t rings = rings_during(
          [&] {
            x.begin();
            CHECK(x.lists.lists() == 2);
            sleep_for(1s);
          },
          2);
      CHECK(x.seen.ids() == ids{0, 1, 2});
      CHECK(x.seen.times() == times{100ms, 110ms, 210ms});
      CHECK(rings == 3);
    });
  }

  TEST_CASE("without the second of them nothing wakes at 110") {
    in_virtual([] {
      worked_example x;
      const std::uint64_t rings = rings_during(
          [&] {
            x.begin();
            CHECK(timeout_lists::remove(x.c[1].idle));
            sleep_for(1s);
          },
          2);
      CHECK(x.seen.times() == times{100ms, 210ms});
      CHECK(rings == 2);
    });
  }

  TEST_CASE("six timeouts of three durations are three lists and three timers") {
    in_virtual([] {
      expiries seen;
      timeout_lists lists([&](entry& e) { seen.add(id_of(e)); });
      std::deque<connection> c;
      const std::uint64_t before = vigil::stats().timers_pending;
      for (const auto d : {50ms, 50ms, 50ms, 10ms, 200ms, 200ms}) {
        c.emplace_back();
        lists.add(c.back().idle, d);
      }
      CHECK(lists.lists() == 3);
      CHECK(lists.size() == 6);
      CHECK(vigil::stats().timers_pending - before == 3);
      sleep_for(1s);
      CHECK(seen.times() == times{10ms, 50ms, 50ms, 50ms, 200ms, 200ms});
    });
  }

  TEST_CASE("an entry added with another duration moves to that list") {
    in_virtual([] {
      expiries seen;
      timeout_lists lists([&](entry& e) { seen.add(id_of(e)); });
      connection c{3};
      lists.add(c.idle, 1s);
      lists.add(c.idle, 10ms);
      lists.add(c.idle, 2s);
      CHECK(lists.size() == 1);
      sleep_for(1h);
      CHECK(seen.times() == times{2s});
      // test-net-settimeout: set, then cleared at once
      lists.add(c.idle, 1ms);
      CHECK(timeout_lists::remove(c.idle));
      sleep_for(1h);
      CHECK(seen.all.size() == 1);
    });
  }

  TEST_CASE("lists that are empty are dropped as others are made") {
    in_virtual([] {
      timeout_lists lists([](entry&) {});
      connection keeps{0};
      lists.add(keeps.idle, 1h);
      connection c{1};
      for (int i = 1; i <= 10'000; ++i)
        lists.add(c.idle, nanoseconds(i));
      CHECK(lists.lists() <= 4);
      CHECK(lists.size() == 2);
    });
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // a sanitizer has an allocator of its own
  TEST_CASE("a duration without entries keeps less than a kilobyte") {
    in_virtual([] {
      constexpr std::size_t many = 2000;
      timeout_lists lists([](entry&) {});
      std::vector<std::unique_ptr<connection>> all;
      for (std::size_t i = 0; i < many; ++i)
        all.push_back(std::make_unique<connection>(0));
      const auto add_all = [&] {
        for (std::size_t i = 0; i < many; ++i)
          lists.add(all[i]->idle, 1s + std::chrono::microseconds(i));
      };
      add_all();
      sleep_for(1h);  // they expire
      CHECK(lists.size() == 0);
      add_all();
      const std::size_t with_entries = ::mallinfo2().uordblks;
      for (const auto& c : all)
        timeout_lists::remove(c->idle);
      CHECK(lists.lists() >= many);
      // All but a few have returned their blocks, of 6 KiB each.
      const std::size_t given_back = with_entries - ::mallinfo2().uordblks;
      CHECK(given_back > (many - 100) * 6 * 1024);
      CHECK(given_back < many * 64 * 1024);  // it has not grown
      add_all();
      sleep_for(2s);
      CHECK(lists.size() == 0);
    });
  }
#endif

  TEST_CASE("the end waits for an on_expire of a duration that nobody uses any more") {
    in_virtual([] {
      const instant start = now();
      std::array<connection, 4> c;
      bool has_ended = false;
      {
        timeout_lists lists([&](entry&) {
          sleep_for(100ms);
          has_ended = true;
        });
        lists.add(c[0].idle, 1ms);
        sleep_for(2ms);
        for (int i = 1; i < 4; ++i)  // each looks for lists to drop
          lists.add(c[static_cast<std::size_t>(i)].idle, i * 1h);
        CHECK(lists.lists() == 4);
      }
      CHECK(has_ended);
      CHECK(since(start) == 101ms);
    });
  }

  TEST_CASE("an entry added by an on_expire for which the destructor waits is in no list") {
    in_virtual([] {
      std::array<connection, 3> c;
      connection other;
      timeout_lists elsewhere([](entry&) {});
      elsewhere.add(other.idle, 1h);
      int calls = 0;
      {
        timeout_lists* lists = nullptr;
        timeout_lists dying([&](entry& e) {
          const int n = ++calls;
          if (n > 2) return;  // too late: the lists may be gone
          sleep_for(n * 1s);
          lists->add(e, n * 20ms);  // there was a list of 20 ms, and none of 40 ms
          lists->add(other.idle, 1h);
          CHECK_THROWS_AS(lists->add(e, 0ms), std::invalid_argument);
          CHECK(lists->lists() == 0);
          CHECK(lists->size() == 0);
          CHECK(lists->expire_now() == 0);
        });
        lists = &dying;
        for (int i = 0; i < 3; ++i)
          dying.add(c[static_cast<std::size_t>(i)].idle, (i + 1) * 10ms);
        sleep_for(25ms);  // two have begun, and the third never does
      }
      CHECK(calls == 2);
      for (connection& each : c)
        CHECK_FALSE(each.idle.is_linked());
      CHECK_FALSE(other.idle.is_linked());
      CHECK(elsewhere.size() == 0);
      CHECK(vigil::stats().timers_pending == 0);
      sleep_for(1h);
      CHECK(calls == 2);
    });
  }

  TEST_CASE("in an on_expire of expire_now the lists may be destroyed") {
    in_virtual([] {
      int calls = 0;
      auto captured = std::make_shared<int>(0);
      std::optional<timeout_lists> lists;
      lists.emplace([&, captured](entry&) {
        ++calls;
        lists.reset();
        CHECK(captured.use_count() == 2);
      });
      std::array<connection, 3> c;
      lists->add(c[0].idle, 1h);
      lists->add(c[1].idle, 1h);
      lists->add(c[2].idle, 2h);
      CHECK(lists->expire_now() == 1);
      CHECK(calls == 1);
      for (connection& each : c)
        CHECK_FALSE(each.idle.is_linked());
      CHECK(captured.use_count() == 1);
    });
  }

  TEST_CASE("many durations: each entry expires after its own") {
    for_each_seed(5, [](std::uint64_t seed) {
      seeded dice(seed);
      int expired = 0;

      struct timed {
        instant due;
        entry e;
      };

      timeout_lists lists([&](entry& e) {
        CHECK(now() == vigil::owner_of<&timed::e>(e).due);
        ++expired;
      });
      std::deque<timed> all(2000);
      for (timed& t : all) {
        const nanoseconds d(1 + dice.below(50) * dice.below(50) * 1000);
        t.due = now() + d;
        lists.add(t.e, d);
        if (dice.below(10) == 0) sleep_for(nanoseconds(dice.below(1000)));
      }
      sleep_for(1s);
      CHECK(expired == 2000);
      CHECK(lists.size() == 0);
    });
  }

  TEST_CASE("expire_now goes through the lists, the shortest duration first") {
    in_virtual([] {
      ids seen;
      timeout_lists lists([&](entry& e) { seen.push_back(id_of(e)); });
      std::array<connection, 3> c{{{0}, {1}, {2}}};
      lists.add(c[0].idle, 3s);
      lists.add(c[1].idle, 1s);
      lists.add(c[2].idle, 2s);
      CHECK(lists.expire_now() == 3);
      CHECK(seen == ids{1, 2, 0});
      CHECK(lists.size() == 0);
    });
  }

  TEST_CASE("in on_expire an entry may be added with any duration") {
    in_virtual([] {
      const instant start = now();
      times seen;
      std::optional<timeout_lists> lists;
      lists.emplace([&](entry& e) {
        seen.push_back(since(start));
        if (seen.size() < 4) lists->add(e, 10ms * seen.size());
      });
      connection c;
      lists->add(c.idle, 5ms);
      sleep_for(1s);
      CHECK(seen == times{5ms, 15ms, 35ms, 65ms});
    });
  }
}
