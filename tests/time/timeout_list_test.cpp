#include "time/timer_stress.hpp"

#include <vigil/timeout_list.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <malloc.h>

namespace {

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using std::chrono::nanoseconds;
using vigil::sleep_for;
using vigil::timeout_list;
using vigil::timeout_lists;
using vigil::wrong_place;
using vigil::testing::settle;
using entry = timeout_list::entry;

instant now() {
  return vigil::clock::now();
}

// What has expired, in order, and when.
struct expiries {
  struct one {
    int id;
    nanoseconds at;
  };

  std::vector<one> all;
  const instant start = now();

  void add(int id) { all.push_back({id, now() - start}); }

  std::vector<int> ids() const {
    std::vector<int> result;
    for (const one& e : all)
      result.push_back(e.id);
    return result;
  }

  std::vector<nanoseconds> times() const {
    std::vector<nanoseconds> result;
    for (const one& e : all)
      result.push_back(e.at);
    return result;
  }
};

struct connection {
  connection(int n = 0) : id(n) {}  // NOLINT(google-explicit-constructor): short in lists

  const int id;
  entry idle;
};

int id_of(entry& e) {
  return vigil::owner_of<&connection::idle>(e).id;
}

// A list that notes what expires.
struct noted_list {
  expiries seen;
  timeout_list list;

  template <class D>
  explicit noted_list(D d) : list(d, [this](entry& e) { seen.add(id_of(e)); }) {}
};

using ids = std::vector<int>;
using times = std::vector<nanoseconds>;

std::uint64_t fired() {
  return vigil::stats().timers_fired;
}

// Timers that fired since, without those of the caller's own sleeps.
template <class F>
std::uint64_t rings_during(F f, std::uint64_t sleeps) {
  const std::uint64_t before = fired();
  f();
  return fired() - before - sleeps;
}

}  // namespace

TEST_SUITE("timeout_list") {
  TEST_CASE("expires an entry exactly one duration after it was added or touched last") {
    in_virtual([] {
      noted_list l(100ms);
      std::array<connection, 3> c{{{0}, {1}, {2}}};
      l.list.add(c[0].idle);
      sleep_for(1ns);
      l.list.add(c[1].idle);
      sleep_for(50ms);
      CHECK(c[0].idle.touch());
      CHECK(c[0].idle.last_touch() == now());
      sleep_for(1h);
      CHECK(l.seen.ids() == ids{1, 0});
      CHECK(l.seen.times() == times{100ms + 1ns, 150ms + 1ns});
      CHECK(l.list.size() == 0);
      CHECK(l.list.duration() == 100ms);
    });
  }

  // Node's worked example, with its two lists: 100 ms at 0, and after 10 ms of
  // work 100 ms and 200 ms.
  TEST_CASE("timers of 100, 100 and 200 ms fire at 100, 110 and 210 with three wake-ups") {
    in_virtual([] {
      expiries seen;
      timeout_lists lists([&](entry& e) { seen.add(id_of(e)); });
      std::array<connection, 3> c{{{0}, {1}, {2}}};
      const std::uint64_t rings = rings_during(
          [&] {
            lists.add(c[0].idle, 100ms);
            sleep_for(10ms);
            lists.add(c[1].idle, 100ms);
            lists.add(c[2].idle, 200ms);
            CHECK(lists.lists() == 2);
            sleep_for(1s);
          },
          2);
      CHECK(seen.ids() == ids{0, 1, 2});
      CHECK(seen.times() == times{100ms, 110ms, 210ms});
      CHECK(rings == 3);
    });
  }

  TEST_CASE("without the second of them nothing wakes at 110") {
    in_virtual([] {
      expiries seen;
      timeout_lists lists([&](entry& e) { seen.add(id_of(e)); });
      std::array<connection, 3> c{{{0}, {1}, {2}}};
      const std::uint64_t rings = rings_during(
          [&] {
            lists.add(c[0].idle, 100ms);
            sleep_for(10ms);
            lists.add(c[1].idle, 100ms);
            lists.add(c[2].idle, 200ms);
            CHECK(timeout_lists::remove(c[1].idle));
            sleep_for(1s);
          },
          2);
      CHECK(seen.times() == times{100ms, 210ms});
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

  // test-timers-refresh
  TEST_CASE("a, b, c with a touched expire in the order b, c, a") {
    for_each_seed(10, [] {
      noted_list l(10ms);
      std::array<connection, 3> c{{{0}, {1}, {2}}};
      for (connection& each : c) {
        l.list.add(each.idle);
        sleep_for(1ns);
      }
      CHECK(c[0].idle.touch());
      sleep_for(1s);
      CHECK(l.seen.ids() == ids{1, 2, 0});
    });
  }

  TEST_CASE("an older time never moves an entry back, and is a success") {
    in_virtual([] {
      noted_list l(10ms);
      connection c;
      l.list.add(c.idle);
      const instant added = now();
      CHECK(c.idle.touch(added - 1h));
      CHECK(c.idle.touch(instant::min()));
      CHECK(c.idle.touch(instant{}));
      CHECK(c.idle.last_touch() == added);
      CHECK(c.idle.touch(added + 1ms));
      CHECK(c.idle.touch(added));
      CHECK(c.idle.last_touch() == added + 1ms);
      sleep_for(1s);
      CHECK(l.seen.times() == times{11ms});
    });
  }

  TEST_CASE("a time in the future is believed and does not hold up other entries") {
    in_virtual([] {
      noted_list l(10ms);
      std::array<connection, 4> c{{{0}, {1}, {2}, {3}}};
      l.list.add(c[0].idle);
      l.list.add(c[3].idle);
      CHECK(c[0].idle.touch(now() + 1h));
      CHECK(c[3].idle.touch(now() + 1h + 1ns));
      sleep_for(20ms);  // the list has looked
      l.list.add(c[1].idle);
      sleep_for(1ns);
      l.list.add(c[2].idle);
      sleep_for(2h);
      CHECK(l.seen.ids() == ids{1, 2, 0, 3});
      CHECK(l.seen.times() == times{30ms, 30ms + 1ns, 1h + 10ms, 1h + 10ms + 1ns});
    });
  }

  TEST_CASE("one touched at the end of time never expires and disturbs no other") {
    in_virtual([] {
      noted_list l(10ms);
      connection c{7};
      connection other{1};
      l.list.add(c.idle);
      CHECK(c.idle.touch(instant::max()));
      l.list.add(other.idle);
      sleep_for(24h * 365 * 100);
      CHECK(l.seen.ids() == ids{1});
      CHECK(timeout_list::remove(c.idle));
    });
  }

  TEST_CASE("touch is false for an entry in no list, expired or removed, and changes nothing") {
    in_virtual([] {
      connection c;
      CHECK_FALSE(c.idle.is_linked());
      CHECK_FALSE(c.idle.touch());
      CHECK_FALSE(c.idle.touch(instant::max()));
      CHECK(c.idle.last_touch() == instant::min());
      int calls = 0;
      bool touched_inside = true;
      bool linked_inside = true;
      timeout_list l(10ms, [&](entry& e) {
        ++calls;
        touched_inside = e.touch();
        linked_inside = e.is_linked();
      });
      l.add(c.idle);
      CHECK(c.idle.is_linked());
      CHECK(timeout_list::remove(c.idle));
      CHECK_FALSE(c.idle.is_linked());
      CHECK_FALSE(c.idle.touch());
      sleep_for(1s);
      CHECK(calls == 0);
      l.add(c.idle);
      sleep_for(1s);
      CHECK(calls == 1);
      CHECK_FALSE(touched_inside);
      CHECK_FALSE(linked_inside);
      CHECK_FALSE(c.idle.touch());
    });
  }

  TEST_CASE("a touch at the very deadline keeps the entry or is false, and it says which") {
    for_each_seed(40, [] {
      noted_list l(10ms);
      connection c;
      l.list.add(c.idle);
      sleep_for(10ms);  // both are due; the seed decides who goes first
      const bool kept = c.idle.touch();
      settle();
      CHECK(l.seen.all.size() == (kept ? 0 : 1));
      sleep_for(10ms);
      settle();
      CHECK(l.seen.all.size() == 1);
    });
  }

  // test-timers-linked-list
  TEST_CASE("adding an entry that is in a list moves it: within the list or from another") {
    in_virtual([] {
      noted_list a(10ms);
      noted_list b(25ms);
      connection c{1};
      connection d{2};
      a.list.add(c.idle);
      a.list.add(d.idle);
      sleep_for(5ms);
      a.list.add(c.idle);
      CHECK(a.list.size() == 2);
      b.list.add(d.idle);
      CHECK(a.list.size() == 1);
      CHECK(b.list.size() == 1);
      sleep_for(1s);
      CHECK(a.seen.ids() == ids{1});
      CHECK(a.seen.times() == times{15ms});
      CHECK(b.seen.ids() == ids{2});
      CHECK(b.seen.times() == times{30ms});
    });
  }

  TEST_CASE("removing twice is harmless, and so is removing what was never added") {
    in_virtual([] {
      noted_list l(10ms);
      connection c;
      CHECK_FALSE(timeout_list::remove(c.idle));
      l.list.add(c.idle);
      CHECK(timeout_list::remove(c.idle));
      CHECK_FALSE(timeout_list::remove(c.idle));
      sleep_for(1s);
      CHECK(l.seen.all.empty());
    });
  }

  TEST_CASE("an entry that dies leaves its list") {
    in_virtual([] {
      noted_list l(10ms);
      connection first{1};
      connection last{3};
      l.list.add(first.idle);
      {
        connection middle{2};
        l.list.add(middle.idle);
        CHECK(l.list.size() == 2);
      }
      l.list.add(last.idle);
      CHECK(l.list.size() == 2);
      sleep_for(1s);
      CHECK(l.seen.ids() == ids{1, 3});
    });
  }

  TEST_CASE("a list that dies leaves its entries in no list, and none expires") {
    in_virtual([] {
      std::vector<std::unique_ptr<connection>> c;
      int calls = 0;
      {
        timeout_list l(10ms, [&](entry&) { ++calls; });
        for (int i = 0; i < 1000; ++i) {
          c.push_back(std::make_unique<connection>());
          l.add(c.back()->idle);
        }
      }
      CHECK_FALSE(c[0]->idle.is_linked());
      CHECK_FALSE(c[999]->idle.touch());
      CHECK(vigil::stats().timers_pending == 0);
      sleep_for(1s);
      CHECK(calls == 0);
      noted_list other(10ms);  // perhaps with the same memory inside
      other.list.add(c[5]->idle);
      c.clear();
      CHECK(other.list.size() == 0);
    });
  }

  TEST_CASE("in its on_expire an entry may be added again, to any list") {
    in_virtual([] {
      const instant start = now();
      times seen;
      std::optional<timeout_list> l;
      std::optional<timeout_list> other;
      l.emplace(10ms, [&](entry& e) {
        seen.push_back(since(start));
        if (seen.size() < 3) {
          l->add(e);
        } else {
          other->add(e);
        }
      });
      other.emplace(5ms, [&](entry&) { seen.push_back(since(start)); });
      connection c;
      l->add(c.idle);
      sleep_for(1s);
      CHECK(seen == times{10ms, 20ms, 30ms, 35ms});
    });
  }

  TEST_CASE("in its on_expire an entry may be destroyed, and others touched, removed, destroyed") {
    in_virtual([] {
      std::vector<std::unique_ptr<connection>> c;
      for (int i = 0; i < 5; ++i)
        c.push_back(std::make_unique<connection>(i));
      ids seen;
      timeout_list l(10ms, [&](entry& e) {
        const int id = id_of(e);
        seen.push_back(id);
        if (id != 0) return;
        c[0].reset();
        CHECK(c[1]->idle.touch());
        CHECK(timeout_list::remove(c[2]->idle));
        c[3].reset();
      });
      for (auto& each : c)
        l.add(each->idle);
      c[1]->idle.touch(now() + 1ns);  // so that c[0] is the first
      c[4]->idle.touch(now() + 1ns);
      c[2]->idle.touch(now() + 1ns);
      c[3]->idle.touch(now() + 1ns);
      sleep_for(1s);
      CHECK(seen == ids{0, 4, 1});
    });
  }

  TEST_CASE("in its on_expire the list may be destroyed") {
    in_virtual([] {
      std::optional<timeout_list> l;
      int calls = 0;
      auto captured = std::make_shared<int>(0);
      l.emplace(10ms, [&, captured](entry&) {
        ++calls;
        l.reset();
        CHECK(captured.use_count() == 2);
      });
      connection a;
      connection b;
      l->add(a.idle);
      l->add(b.idle);
      sleep_for(1s);
      CHECK(calls == 1);
      CHECK_FALSE(b.idle.is_linked());
      CHECK(captured.use_count() == 1);
    });
  }

  TEST_CASE("remove waits for an on_expire that is running, and so do both destructors") {
    in_virtual([] {
      const instant start = now();
      std::optional<timeout_list> l;
      l.emplace(10ms, [&](entry&) { sleep_for(1s); });
      std::optional<connection> c;
      c.emplace();
      l->add(c->idle);
      sleep_for(11ms);
      CHECK_FALSE(timeout_list::remove(c->idle));
      CHECK(since(start) == 1s + 10ms);
      l->add(c->idle);
      sleep_for(11ms);
      c.reset();
      CHECK(since(start) == 2s + 20ms);
      c.emplace();
      l->add(c->idle);
      sleep_for(11ms);
      l.reset();
      CHECK(since(start) == 3s + 30ms);
    });
  }

  TEST_CASE("several may wait for the same on_expire, and one elsewhere takes no time") {
    in_virtual([] {
      const instant start = now();
      timeout_list l(10ms, [&](entry&) { sleep_for(1s); });
      connection c;
      connection other;
      l.add(c.idle);
      sleep_for(11ms);
      l.add(other.idle);
      CHECK(timeout_list::remove(other.idle));
      CHECK(since(start) == 11ms);
      in_fibers(3, [&](int) {
        CHECK_FALSE(timeout_list::remove(c.idle));
        CHECK(since(start) == 1s + 10ms);
      });
    });
  }

  TEST_CASE("remove during an on_expire that adds the entry again takes it out once more") {
    in_virtual([] {
      std::optional<timeout_list> l;
      int calls = 0;
      l.emplace(10ms, [&](entry& e) {
        ++calls;
        sleep_for(1s);
        l->add(e);
      });
      connection c;
      l->add(c.idle);
      sleep_for(11ms);
      CHECK(timeout_list::remove(c.idle));
      CHECK_FALSE(c.idle.is_linked());
      sleep_for(1h);
      CHECK(calls == 1);
    });
  }

  TEST_CASE("remove inside its own on_expire does not wait") {
    in_virtual([] {
      std::optional<timeout_list> l;
      bool prevented = false;
      int calls = 0;
      l.emplace(10ms, [&](entry& e) {
        ++calls;
        CHECK_FALSE(timeout_list::remove(e));
        l->add(e);
        prevented = timeout_list::remove(e);
      });
      connection c;
      l->add(c.idle);
      sleep_for(1s);
      CHECK(calls == 1);
      CHECK(prevented);
    });
  }

  TEST_CASE("an on_expire that waits holds up none of the others") {
    in_virtual([] {
      expiries seen;
      timeout_list l(10ms, [&](entry& e) {
        seen.add(id_of(e));
        sleep_for(1h);
      });
      std::deque<connection> c;
      for (int i = 0; i < 100; ++i) {
        c.emplace_back(i);
        l.add(c.back().idle);
      }
      sleep_for(5ms);
      connection late{100};
      l.add(late.idle);
      sleep_for(20ms);
      REQUIRE(seen.all.size() == 101);
      CHECK(seen.all[99].at == 10ms);
      CHECK(seen.all[100].at == 15ms);
      sleep_for(2h);
    });
  }

  TEST_CASE("the next on_expire of an entry begins when the one that runs has ended") {
    in_virtual([] {
      const instant start = now();
      times begun;
      std::optional<timeout_list> l;
      l.emplace(10ms, [&](entry& e) {
        begun.push_back(since(start));
        if (begun.size() == 3) return;
        l->add(e);
        sleep_for(begun.size() == 1 ? 25ms : 5ms);
      });
      connection c;
      l->add(c.idle);
      connection other{1};
      sleep_for(1s);
      CHECK(begun == times{10ms, 35ms, 45ms});
    });
  }

  TEST_CASE("one that is held by its own on_expire can be touched, moved, removed and destroyed") {
    in_virtual([] {
      const instant start = now();
      times begun;
      std::optional<timeout_list> l;
      l.emplace(10ms, [&](entry& e) {
        begun.push_back(since(start));
        if (begun.size() > 1) return;
        l->add(e);
        sleep_for(100ms);
      });
      connection c;
      l->add(c.idle);
      sleep_for(50ms);
      CHECK(l->size() == 1);
      CHECK(c.idle.touch());
      sleep_for(55ms);  // until 105 ms, the touch counts
      CHECK(c.idle.touch());
      sleep_for(1s);
      CHECK(begun == times{10ms, 115ms});
      begun.clear();
      l->add(c.idle);
      sleep_for(50ms);
      CHECK(timeout_list::remove(c.idle));  // held, and its on_expire ends first
      sleep_for(1s);
      CHECK(begun.size() == 1);
    });
  }

  TEST_CASE("expire_now calls for all in the order of their last touch, on the caller's fiber") {
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
      int calls = 0;
      timeout_list l(1h, [&](entry&) {
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
      CHECK(calls == 2);
      CHECK(l.size() == 2);
      CHECK(c[3].idle.is_linked());
      sleep_for(2h);
      CHECK(calls == 4);
    });
  }

  TEST_CASE("expire_now that an exception of on_unhandled leaves puts the rest back") {
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

  TEST_CASE("arms one timer for any number of entries, and none without") {
    in_virtual([] {
      const auto before = vigil::stats();
      noted_list l(10ms);
      CHECK(vigil::stats().timers_pending == before.timers_pending);
      std::deque<connection> c(10'000);
      for (connection& each : c) {
        l.list.add(each.idle);
        each.idle.touch();
      }
      const auto after = vigil::stats();
      CHECK(after.timers_armed - before.timers_armed == 1);
      CHECK(after.timers_reset == before.timers_reset);
      CHECK(after.heap_entries - before.heap_entries == 1);
      for (connection& each : c)
        timeout_list::remove(each.idle);
      CHECK(vigil::stats().timers_pending == before.timers_pending);
      CHECK(rings_during([] { sleep_for(1s); }, 1) == 0);
    });
  }

  TEST_CASE("all that are due together expire with one ring of the timer") {
    in_virtual([] {
      noted_list l(10ms);
      std::deque<connection> c(1000);
      for (connection& each : c)
        l.list.add(each.idle);
      // The callback that expires the next is queued at once: no deadline.
      const auto before = vigil::stats();
      sleep_for(1s);
      CHECK(l.seen.all.size() == 1000);
      CHECK(l.seen.all.front().at == 10ms);
      CHECK(l.seen.all.back().at == 10ms);
      // Never a wake-up: the heap was asked once.
      CHECK(vigil::stats().heap_entries <= before.heap_entries + 1);
    });
  }

  TEST_CASE("rings once in a duration, however often the entries are touched") {
    in_virtual([] {
      noted_list l(1s);
      std::deque<connection> c(50);  // few enough for one look under the lock
      for (connection& each : c)
        l.list.add(each.idle);
      const std::uint64_t rings = rings_during(
          [&] {
            for (int i = 0; i < 10'000; ++i) {
              sleep_for(1ms);
              for (connection& each : c)
                CHECK(each.idle.touch());
            }
          },
          10'000);
      CHECK(l.seen.all.empty());
      CHECK(rings <= 11);
      for (connection& each : c)
        timeout_list::remove(each.idle);
    });
  }

  TEST_CASE("adding, touching, removing and expiring allocate nothing") {
#ifndef VIGIL_TEST_UNDER_SANITIZER
    in_virtual([] {
      int calls = 0;
      timeout_list l(10ms, [&](entry&) { ++calls; });
      std::deque<connection> c(10'000);
      const auto round = [&] {
        for (connection& each : c)
          l.add(each.idle);
        sleep_for(1ms);
        for (connection& each : c)
          each.idle.touch();
        for (std::size_t i = 0; i < c.size(); i += 2)
          timeout_list::remove(c[i].idle);
        sleep_for(1s);
      };
      round();
      const std::size_t before = ::mallinfo2().uordblks;
      for (int i = 0; i < 5; ++i)
        round();
      CHECK(::mallinfo2().uordblks <= before + 4096);
      CHECK(calls == 6 * 5000);
    });
#endif
  }

  TEST_CASE("an exception that leaves on_expire goes to on_unhandled, and the others expire") {
    static int reported;
    reported = 0;
    vigil::testing::virtual_options how;
    how.runtime.on_unhandled = [](std::exception_ptr) { ++reported; };
    in_virtual(how, [] {
      int calls = 0;
      timeout_list l(10ms, [&](entry&) {
        ++calls;
        throw std::runtime_error("no");
      });
      std::array<connection, 3> c;
      for (connection& each : c)
        l.add(each.idle);
      sleep_for(1s);
      CHECK(calls == 3);
      CHECK(reported == 3);
      for (connection& each : c)
        l.add(each.idle);
      CHECK(l.expire_now() == 3);
      CHECK(reported == 6);
      CHECK_FALSE(timeout_list::remove(c[0].idle));  // does not wait for ever
    });
  }

  TEST_CASE("bad input is refused at the call, and says what to do") {
    in_virtual([] {
      for (const nanoseconds d : {0ns, -1ns, nanoseconds::min()})
        CHECK_THROWS_AS(timeout_list(d, [](entry&) {}), std::invalid_argument);
      CHECK_THROWS_AS(timeout_list(1s, std::function<void(entry&)>()), std::invalid_argument);
      CHECK_THROWS_AS(timeout_list(1s, static_cast<void (*)(entry&)>(nullptr)),
                      std::invalid_argument);
      CHECK_THROWS_AS(timeout_lists(std::function<void(entry&)>()), std::invalid_argument);
      timeout_lists lists([](entry&) {});
      connection c;
      lists.add(c.idle, 1s);
      CHECK_THROWS_AS(lists.add(c.idle, 0s), std::invalid_argument);
      CHECK(c.idle.is_linked());
      CHECK(lists.lists() == 1);
      timeout_list l(1s, [](entry&) {});
      const timeout_list moved = std::move(l);
      // NOLINTBEGIN(bugprone-use-after-move): that is the test
      CHECK_THROWS_AS(l.add(c.idle), std::logic_error);
      CHECK_THROWS_AS(l.expire_now(), std::logic_error);
      CHECK(l.size() == 0);
      // NOLINTEND(bugprone-use-after-move)
    });
    CHECK_THROWS_AS(timeout_list(1s, [](entry&) {}), wrong_place);
    CHECK_THROWS_AS(timeout_lists([](entry&) {}), wrong_place);
  }

  TEST_CASE("a duration beyond the clock's range never ends, and costs no timer") {
    in_virtual([] {
      int calls = 0;
      timeout_list l(nanoseconds::max(), [&](entry&) { ++calls; });
      timeout_list long_one(std::chrono::hours::max(), [&](entry&) { ++calls; });
      connection a;
      connection b;
      l.add(a.idle);
      long_one.add(b.idle);
      CHECK(vigil::stats().timers_pending == 0);
      sleep_for(24h * 365 * 100);
      CHECK(calls == 0);
      CHECK(l.expire_now() == 1);
      CHECK(calls == 1);
    });
  }

  TEST_CASE("a list outlives its runtime: add throws, the rest is harmless") {
    std::optional<timeout_list> l;
    std::optional<timeout_lists> lists;
    connection in_it;
    connection c;
    in_virtual([&] {
      l.emplace(1h, [](entry&) {});
      lists.emplace([](entry&) {});
      l->add(in_it.idle);
      lists->add(c.idle, 1h);
    });
    CHECK(in_it.idle.is_linked());
    CHECK(in_it.idle.touch(vigil::testing::epoch + 1h));
    CHECK(l->size() == 1);
    CHECK_THROWS_AS(l->add(c.idle), vigil::runtime_gone);
    CHECK_FALSE(c.idle.is_linked());
    CHECK_THROWS_AS(lists->add(c.idle, 1h), vigil::runtime_gone);
    CHECK_THROWS_AS(lists->add(c.idle, 2h), vigil::runtime_gone);
    CHECK_THROWS_AS(l->expire_now(), wrong_place);
    in_virtual([&] { CHECK_THROWS_AS(l->add(c.idle), vigil::runtime_gone); });
    CHECK(timeout_list::remove(in_it.idle));
    l.reset();
  }

  TEST_CASE("what a run leaves in a list expires in the next run of the runtime") {
    vigil::options how;
    vigil::internal::scheduler_options o = vigil::internal::checked(how);
    o.workers = 1;
    o.virtual_time = true;
    o.seed = 1;
    vigil::internal::runtime_core core(o, nullptr, how.blocking_threads);
    std::optional<timeout_list> l;
    std::optional<timeout_lists> lists;
    std::optional<expiries> seen;
    std::array<connection, 5> c{{{0}, {1}, {2}, {3}, {4}}};
    const auto run = [&](auto body) { core.sched.run(body, false); };
    const auto expire = [&](entry& e) { seen->add(id_of(e)); };
    run([&] {
      seen.emplace();
      l.emplace(20ms, expire);
      lists.emplace(expire);
      l->add(c[0].idle);
      lists->add(c[1].idle, 30ms);
      sleep_for(10ms);
      CHECK(c[1].idle.touch());
    });
    CHECK(seen->all.empty());
    CHECK(c[0].idle.is_linked());
    run([&] { sleep_for(25ms); });  // without another add
    CHECK(seen->ids() == ids{0});
    l->add(c[2].idle);  // between two runs
    run([&] {
      l->add(c[3].idle);
      sleep_for(1s);
      CHECK(l->size() == 0);
      l->add(c[0].idle);
      timeout_list::remove(c[0].idle);
      l->add(c[4].idle);
      sleep_for(1s);
      CHECK(l->size() == 0);
      CHECK(lists->size() == 0);
      l->add(c[0].idle);
    });
    CHECK(seen->ids() == ids{0, 1, 2, 3, 4});
    CHECK(seen->times() == times{20ms, 40ms, 55ms, 55ms, 1s + 55ms});
    l.reset();
    run([] { sleep_for(1s); });
    CHECK(seen->all.size() == 5);
  }

  TEST_CASE("a program that ends leaves its entries unexpired and destroys the captures") {
    auto captured = std::make_shared<int>(0);
    int calls = 0;
    connection c;
    in_virtual([&] {
      timeout_list l(10ms, [&, captured](entry&) { ++calls; });
      l.add(c.idle);
    });
    CHECK(calls == 0);
    CHECK(captured.use_count() == 1);
    CHECK_FALSE(c.idle.is_linked());
  }

  TEST_CASE("entries may be members beside others, bases, or both") {
    struct request : entry {
      int number = 0;
      entry body;
    };

    in_virtual([] {
      ids seen;
      timeout_list headers(10ms,
                           [&](entry& e) { seen.push_back(static_cast<request&>(e).number); });
      timeout_list bodies(
          20ms, [&](entry& e) { seen.push_back(-vigil::owner_of<&request::body>(e).number); });
      request r;
      r.number = 5;
      headers.add(r);
      bodies.add(r.body);
      sleep_for(1s);
      CHECK(seen == ids{5, -5});
    });
  }

  TEST_CASE("the dump names who waits for an on_expire") {
    in_virtual([] {
      timeout_list l(10ms, [&](entry&) { sleep_for(1s); });
      connection c;
      l.add(c.idle);
      sleep_for(11ms);
      auto f = vigil::spawn([&] { timeout_list::remove(c.idle); });
      settle();
      char* text = nullptr;
      std::size_t size = 0;
      std::FILE* const memory = ::open_memstream(&text, &size);
      vigil::debug::dump(memory);
      std::fclose(memory);
      const std::string dump(text, size);
      std::free(text);
      CHECK(dump.find("the end of an on_expire") != std::string::npos);
      f.join();
    });
  }
}

TEST_SUITE("timeout_lists") {
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

// --- random programs against a model

namespace {

// What a list must do, kept in the plainest way: every entry's last touch.
class model_list {
 public:
  model_list(std::size_t n, nanoseconds d) : last_(n), d_(d) {}

  void add(std::size_t i, instant t) { last_[i] = t; }

  bool touch(std::size_t i, instant t) {
    if (!last_[i]) return false;
    last_[i] = std::max(*last_[i], t);
    return true;
  }

  bool remove(std::size_t i) { return std::exchange(last_[i], std::nullopt).has_value(); }

  // The entry that is called now was due now, and none is that ought to have
  // been called before.
  void expire(std::size_t i, instant t) {
    REQUIRE(last_[i].has_value());
    CHECK(*last_[i] + d_ == t);
    for (const auto& other : last_)
      CHECK((!other || *other >= *last_[i]));
    last_[i].reset();
  }

  // Nothing is overdue.
  void check_at(instant t) const {
    for (const auto& each : last_)
      CHECK((!each || *each + d_ >= t));
  }

  std::size_t size() const {
    return static_cast<std::size_t>(std::count_if(
        last_.begin(), last_.end(), [](const auto& each) { return each.has_value(); }));
  }

 private:
  std::vector<std::optional<instant>> last_;
  const nanoseconds d_;
};

void random_program(std::uint64_t seed) {
  seeded dice(seed);
  const std::uint32_t n = 1 + dice.below(40);
  // From a duration in which few things happen to one in which all do.
  const nanoseconds d(nanoseconds(1 + dice.below(20)) * (dice.below(2) == 0 ? 1 : 1'000'000));
  const nanoseconds step = d / static_cast<int>(1 + dice.below(10)) + 1ns;
  model_list model(n, d);
  std::vector<std::unique_ptr<connection>> reborn(n);
  for (std::size_t i = 0; i < n; ++i)
    reborn[i] = std::make_unique<connection>(static_cast<int>(i));
  std::optional<timeout_list> l;
  const auto act = [&](bool inside) {
    const std::size_t i = dice.below(n);
    entry& e = reborn[i]->idle;
    switch (dice.below(inside ? 5 : 6)) {
      case 0:
      case 1:
        l->add(e);
        model.add(i, now());
        break;
      case 2: {
        // Also of the past; never of the future, which has a test of its own.
        const instant t = now() - nanoseconds(dice.below(3)) * (dice.below(2) == 0 ? 1 : 1000);
        CHECK(e.touch(t) == model.touch(i, t));
        break;
      }
      case 3:
        CHECK(timeout_list::remove(e) == model.remove(i));
        break;
      case 4:
        reborn[i] = std::make_unique<connection>(static_cast<int>(i));
        model.remove(i);
        break;
      case 5:
        sleep_for(nanoseconds(dice.below(static_cast<std::uint32_t>(step.count()) + 1)));
        settle();
        model.check_at(now() + 1ns);
        CHECK(l->size() == model.size());
        break;
    }
  };
  l.emplace(d, [&](entry& e) {
    model.expire(static_cast<std::size_t>(id_of(e)), now());
    for (std::uint64_t k = dice.below(3); k > 0; --k)
      act(true);
  });
  for (int k = 0; k < 300; ++k)
    act(false);
  for (auto& each : reborn) {
    timeout_list::remove(each->idle);
    model.remove(static_cast<std::size_t>(each->id));
  }
  sleep_for(3 * d);
  CHECK(l->size() == 0);
}

}  // namespace

TEST_SUITE("timeout_list at random") {
  // Replay: VIGIL_TIMEOUT_SEED=n.
  TEST_CASE("random programs do what the model says, to the nanosecond") {
    if (const char* const one = std::getenv("VIGIL_TIMEOUT_SEED")) {
      const std::uint64_t seed = std::strtoull(one, nullptr, 10);
      in_virtual({.seed = seed, .runtime = {}}, [&] { random_program(seed); });
      return;
    }
    for_each_seed(static_cast<std::uint64_t>(rounds(2000)), random_program);
  }

  TEST_CASE("random programs whose on_expire waits: never early, never two at once, none lost") {
    for_each_seed(static_cast<std::uint64_t>(rounds(500)), [](std::uint64_t seed) {
      seeded dice(seed);
      constexpr std::uint32_t n = 8;
      constexpr nanoseconds d = 10ms;
      std::array<instant, n> last{};
      std::array<int, n> inside{};
      std::array<int, n> balance{};  // adds that neither expired nor were taken out
      std::deque<connection> c;
      for (std::uint32_t i = 0; i < n; ++i)
        c.emplace_back(static_cast<int>(i));
      std::optional<timeout_list> l;
      const auto add = [&](std::uint32_t i) {
        balance[i] = 1;
        last[i] = now();
        l->add(c[i].idle);
      };
      const auto touch = [&](std::uint32_t i) {
        if (c[i].idle.touch()) last[i] = now();
      };
      l.emplace(d, [&](entry& e) {
        const auto i = static_cast<std::uint32_t>(id_of(e));
        CHECK(inside[i]++ == 0);
        CHECK(balance[i]-- == 1);
        CHECK(now() >= last[i] + d);
        for (std::uint32_t k = dice.below(4); k > 0; --k) {
          if (dice.below(2) == 0) sleep_for(nanoseconds(dice.below(25'000'000)));
          if (dice.below(2) == 0) add(i);
          touch(dice.below(n));
        }
        --inside[i];
      });
      for (int k = 0; k < 100; ++k) {
        const std::uint32_t i = dice.below(n);
        switch (dice.below(4)) {
          case 0:
            add(i);
            break;
          case 1:
            touch(i);
            break;
          case 2:
            if (timeout_list::remove(c[i].idle)) balance[i] = 0;
            CHECK(inside[i] == 0);
            CHECK(balance[i] == 0);
            break;
          case 3:
            sleep_for(nanoseconds(dice.below(10'000'000)));
            break;
        }
      }
      for (connection& each : c)
        timeout_list::remove(each.idle);
      // An on_expire may have added its entry again after that of another.
      for (int k = 0; k < 100 && l->size() != 0; ++k) {
        for (connection& each : c)
          timeout_list::remove(each.idle);
      }
      l.reset();
      CHECK(inside == std::array<int, n>{});
    });
  }

  // Some touched all the time, some now and then, some never; each expiry is at
  // exactly its last touch and a duration, in that order.
  TEST_CASE("ten thousand entries touched at random expire in the order of their last touch") {
    for_each_seed(3, [](std::uint64_t seed) {
      seeded dice(seed);
      constexpr nanoseconds d = 1s;
      std::deque<connection> c;
      std::vector<instant> last(10'000);
      int expired = 0;
      instant before{};
      timeout_list l(d, [&](entry& e) {
        const instant mine = last[static_cast<std::size_t>(id_of(e))];
        CHECK(now() == mine + d);
        CHECK(mine >= before);
        before = mine;
        ++expired;
      });
      for (int i = 0; i < 10'000; ++i) {
        c.emplace_back(i);
        l.add(c.back().idle);
        last[static_cast<std::size_t>(i)] = now();
        if (dice.below(4) == 0) sleep_for(nanoseconds(dice.below(100'000)));
      }
      for (int k = 0; k < 20'000; ++k) {
        // The square: low numbers often.
        const std::size_t i = dice.below(100) * dice.below(100);
        if (c[i].idle.touch()) last[i] = now();
        if (dice.below(4) == 0) sleep_for(nanoseconds(dice.below(1'000'000)));
      }
      sleep_for(2s);
      CHECK(expired == 10'000);
    });
  }
}

// --- fibers and threads in real time

namespace {

struct hammered {
  entry idle;
  // The latest time for which a touch or an add has returned true.
  std::atomic<std::int64_t> promised{0};
  std::atomic<int> added{0};
  std::atomic<int> expired{0};
  std::atomic<int> removed{0};
  std::atomic<bool> is_removed{false};  // no on_expire may run
};

std::int64_t count_of(instant t) {
  return t.time_since_epoch().count();
}

void raise(std::atomic<std::int64_t>& to, std::int64_t value) {
  std::int64_t seen = to.load();
  while (seen < value && !to.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

TEST_SUITE("timeout_list on threads") {
  // None early, none lost, none after removal.
  TEST_CASE("touched by four threads while it expires, entries are added and removed") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      constexpr nanoseconds d = 200us;
      constexpr std::size_t n = 64;
      std::deque<hammered> all(n);
      std::atomic<int> early{0};
      std::atomic<int> after_removal{0};
      std::optional<timeout_list> l;
      l.emplace(d, [&](entry& e) {
        hammered& h = vigil::owner_of<&hammered::idle>(e);
        if (h.is_removed.load()) after_removal.fetch_add(1);
        if (count_of(now()) < h.promised.load() + d.count()) early.fetch_add(1);
        h.expired.fetch_add(1);
      });
      std::atomic<bool> is_over{false};
      std::vector<std::unique_ptr<plain_thread>> touching;
      for (std::uint64_t t = 0; t < 4; ++t) {
        touching.push_back(std::make_unique<plain_thread>([&, t] {
          seeded dice(t + 1);
          while (!is_over.load()) {
            hammered& h = all[dice.below(n)];
            const instant time = now();
            if (h.idle.touch(time)) raise(h.promised, count_of(time));
            if (dice.below(16) == 0) std::this_thread::yield();
          }
        }));
      }
      // One fiber adds and removes each entry; they share the list.
      in_fibers(4, [&](int f) {
        seeded dice(static_cast<std::uint64_t>(f) + 100);
        const int turns = rounds(2000);
        for (int k = 0; k < turns; ++k) {
          hammered& h = all[dice.below(n / 4) * 4 + static_cast<std::size_t>(f)];
          if (dice.below(2) == 0) {
            if (!h.idle.is_linked()) {
              timeout_list::remove(h.idle);  // until its on_expire has ended
              h.is_removed.store(false);
              h.promised.store(count_of(now()));
              h.added.fetch_add(1);
              l->add(h.idle);
            }
          } else {
            if (timeout_list::remove(h.idle)) h.removed.fetch_add(1);
            h.is_removed.store(true);
          }
          if (dice.below(8) == 0) sleep_for(nanoseconds(dice.below(400'000)));
        }
      });
      is_over.store(true);
      for (auto& t : touching)
        t->join();
      // What nobody touches any more expires.
      while (l->size() != 0)
        sleep_for(1ms);
      l.reset();
      CHECK(early.load() == 0);
      CHECK(after_removal.load() == 0);
      for (const hammered& h : all) {
        CHECK(h.added.load() == h.expired.load() + h.removed.load());
        CHECK_FALSE(h.idle.is_linked());
      }
    });
  }

  TEST_CASE("entries move between lists that expire, and die, on four fibers") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      std::atomic<int> calls{0};
      const auto count = [&](entry&) { calls.fetch_add(1); };
      timeout_list a(50us, count);
      timeout_list b(70us, count);
      timeout_lists many(count);
      in_fibers(4, [&](int f) {
        seeded dice(static_cast<std::uint64_t>(f) + 1);
        std::vector<std::unique_ptr<connection>> own(20);
        const int turns = rounds(3000);
        for (int k = 0; k < turns; ++k) {
          auto& c = own[dice.below(20)];
          if (c == nullptr) c = std::make_unique<connection>();
          switch (dice.below(6)) {
            case 0:
              a.add(c->idle);
              break;
            case 1:
              b.add(c->idle);
              break;
            case 2:
              many.add(c->idle, std::chrono::microseconds(10 + dice.below(20)));
              break;
            case 3:
              timeout_list::remove(c->idle);
              break;
            case 4:
              c.reset();
              break;
            case 5:
              sleep_for(nanoseconds(dice.below(100'000)));
              break;
          }
        }
      });
      CHECK(a.size() == 0);
      CHECK(b.size() == 0);
      CHECK(many.size() == 0);
    });
  }

  // A list that is destroyed as its entries are: whoever comes late finds the
  // same memory with another list in it, or none.
  TEST_CASE("lists and entries are destroyed at the same moment on different fibers") {
    in_runtime({.workers = {2, 4}}, [] {
      const int turns = rounds(1000);
      for (int k = 0; k < turns; ++k) {
        auto l = std::make_unique<timeout_list>(20us, [](entry&) {});
        std::vector<std::unique_ptr<connection>> c(8);
        for (auto& each : c) {
          each = std::make_unique<connection>();
          l->add(each->idle);
        }
        auto list_goes = vigil::spawn([&] { l.reset(); });
        auto entries_go = vigil::spawn([&] { c.clear(); });
        list_goes.join();
        entries_go.join();
      }
    });
  }

  // With assertions on, the order of locks is checked.
  TEST_CASE("a plain thread adds and removes while a program waits until all is done") {
    for (const unsigned workers : {1U, 2U}) {
      vigil::options o;
      o.workers = workers;
      o.exit = vigil::exit_when::all_done;
      vigil::runtime rt(o);
      std::optional<timeout_list> l;
      connection c;
      std::thread outside;
      rt.run([&] {
        l.emplace(1h, [](entry&) {});
        outside = std::thread([&, guard = rt.make_work_guard()] {
          for (int i = 0; i < rounds(2000); ++i) {
            l->add(c.idle);
            CHECK(timeout_list::remove(c.idle));
          }
        });
      });
      outside.join();
      CHECK(l->size() == 0);
    }
  }

  TEST_CASE("plain threads add, touch, remove and wait for an on_expire") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<bool> is_inside{false};
      std::atomic<bool> has_ended{false};
      timeout_list l(1ms, [&](entry&) {
        is_inside.store(true);
        sleep_for(2ms);
        has_ended.store(true);
      });
      connection c;
      plain_thread t([&] {
        const instant added = now();
        l.add(c.idle);
        CHECK(c.idle.touch(added));
        while (!is_inside.load())
          std::this_thread::yield();
        CHECK(now() >= added + 1ms);
        CHECK_FALSE(timeout_list::remove(c.idle));
        CHECK(has_ended.load());
      });
      t.join();
    });
  }
}
