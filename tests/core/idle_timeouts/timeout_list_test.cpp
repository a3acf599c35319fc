#include "core/idle_timeouts/idle_timeouts_test.hpp"

#include <functional>
#include <numeric>

using namespace vigil::testing_support;
using vigil::wrong_place;

namespace {

// The number of timers that the heap has fired.
std::uint64_t heap_firings() {
  const auto count = vigil::stats().lateness.count;
  return std::accumulate(count.begin(), count.end(), std::uint64_t{0});
}

}  // namespace

namespace {

// A runtime on virtual time that has several runs.
class one_runtime {
 public:
  template <class F>
  void run(F body) {
    core_.sched.run(body);
  }

 private:
  static vigil::detail::scheduler_options options() {
    vigil::detail::scheduler_options o = vigil::detail::checked(vigil::options());
    o.workers = 1;
    o.virtual_time = true;
    o.seed = 1;
    return o;
  }

  vigil::detail::runtime_core core_{options()};
};

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

  TEST_CASE("a destroyed list leaves its entries in no list, and none expires") {
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
      // The callback that expires the next entry is queued at once, without a deadline.
      // So the heap fires for the list and for the sleep.
      const std::uint64_t before = heap_firings();
      sleep_for(1s);
      CHECK(l.seen.all.size() == 1000);
      CHECK(l.seen.all.front().at == 10ms);
      CHECK(l.seen.all.back().at == 10ms);
      CHECK(heap_firings() - before == 2);
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

  TEST_CASE("bad input is refused at the call, with a message that gives the remedy") {
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
      // NOLINTBEGIN(bugprone-use-after-move): the move is what is tested
      CHECK_THROWS_AS(l.add(c.idle), std::logic_error);
      CHECK_THROWS_AS(l.expire_now(), std::logic_error);
      CHECK(l.size() == 0);
      CHECK(l.duration() == 0ns);
      const timeout_lists moved_lists = std::move(lists);
      CHECK_THROWS_AS(lists.add(c.idle, 1s), std::logic_error);
      CHECK_THROWS_AS(lists.expire_now(), std::logic_error);
      CHECK(lists.size() == 0);
      CHECK(lists.lists() == 0);
      CHECK(c.idle.is_linked());
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
    CHECK_FALSE(in_it.idle.is_linked());
    CHECK_FALSE(in_it.idle.touch(vigil::testing::epoch + 1h));
    CHECK(l->size() == 0);
    CHECK_THROWS_AS(l->add(c.idle), vigil::runtime_gone);
    CHECK_FALSE(c.idle.is_linked());
    CHECK_THROWS_AS(lists->add(c.idle, 1h), vigil::runtime_gone);
    CHECK_THROWS_AS(lists->add(c.idle, 2h), vigil::runtime_gone);
    CHECK_THROWS_AS(l->expire_now(), wrong_place);
    in_virtual([&] { CHECK_THROWS_AS(l->add(c.idle), vigil::runtime_gone); });
    CHECK_FALSE(timeout_list::remove(in_it.idle));
    l.reset();
  }

  TEST_CASE("the end of a run removes its entries, and in a later run they are added again") {
    one_runtime runtime;
    std::optional<timeout_list> l;
    std::optional<timeout_list> never_due;
    std::optional<timeout_lists> lists;
    std::optional<expiries> seen;
    std::array<connection, 4> c{{{0}, {1}, {2}, {3}}};
    const auto expire = [&](entry& e) { seen->add(id_of(e)); };
    runtime.run([&] {
      seen.emplace();
      l.emplace(20ms, expire);
      never_due.emplace(24h * 365 * 1000, expire);
      lists.emplace(expire);
      l->add(c[0].idle);
      lists->add(c[1].idle, 30ms);
      never_due->add(c[2].idle);
      sleep_for(10ms);
      CHECK(c[1].idle.touch());
    });
    for (connection& each : c) {
      CHECK_FALSE(each.idle.is_linked());
      CHECK_FALSE(each.idle.touch());
      CHECK_FALSE(timeout_list::remove(each.idle));
    }
    CHECK(l->size() + lists->size() + never_due->size() == 0);
    runtime.run([&] {
      sleep_for(1s);
      CHECK(seen->all.empty());
      l->add(c[0].idle);
      lists->add(c[1].idle, 30ms);
      lists->add(c[3].idle, 40ms);
      sleep_for(1s);
      l->add(c[2].idle);
    });
    CHECK(seen->ids() == ids{0, 1, 3});
    const auto begun = 10ms + 1s;
    CHECK(seen->times() == times{begun + 20ms, begun + 30ms, begun + 40ms});
    l.reset();
    runtime.run([] { sleep_for(1s); });
    CHECK(seen->all.size() == 3);
  }

  TEST_CASE("between two runs add reports that there is none, and leaves the entry in no list") {
    one_runtime runtime;
    std::optional<timeout_list> l;
    std::optional<timeout_lists> lists;
    connection c;
    runtime.run([&] {
      l.emplace(20ms, [](entry&) {});
      lists.emplace([](entry&) {});
      lists->add(c.idle, 30ms);
    });
    CHECK_THROWS_WITH_AS(l->add(c.idle),
                         doctest::Contains("no run of the list's runtime is under way"),
                         vigil::runtime_gone);
    CHECK_THROWS_AS(lists->add(c.idle, 30ms), vigil::runtime_gone);
    CHECK_THROWS_AS(lists->add(c.idle, 40ms), vigil::runtime_gone);
    CHECK_FALSE(c.idle.is_linked());
    CHECK(l->size() + lists->size() == 0);
    runtime.run([&] {
      l->add(c.idle);
      CHECK(c.idle.is_linked());
    });
  }

  TEST_CASE("entries added by the last destructors of a run are in no list after it") {
    struct adds_at_its_end {
      timeout_list* list;
      connection* c;

      void operator()() const {}

      ~adds_at_its_end() {
        if (list != nullptr) list->add(c->idle);
      }

      adds_at_its_end(timeout_list& l, connection& of) : list(&l), c(&of) {}

      adds_at_its_end(adds_at_its_end&& other) noexcept
          : list(std::exchange(other.list, nullptr)), c(other.c) {}
    };

    one_runtime runtime;
    std::optional<timeout_list> l;
    connection c;
    runtime.run([&] {
      l.emplace(20ms, [](entry&) {});
      vigil::after_func(1h, adds_at_its_end(*l, c));
    });
    CHECK_FALSE(c.idle.is_linked());
    CHECK(l->size() == 0);
    runtime.run([] { sleep_for(1s); });
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
}
