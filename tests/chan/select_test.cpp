// select: what Go's chan_test.go and test/chan check, and what is ours.
#include "chan/chan_test.hpp"
#include "support/child.hpp"

#include <vigil/select.hpp>
#include <vigil/time.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <malloc.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::channel;
using vigil::channel_closed;
using vigil::channel_status;
using vigil::go;
using vigil::make_channel;
using vigil::on_deadline;
using vigil::on_recv;
using vigil::on_send;
using vigil::on_timeout;
using vigil::otherwise;
using vigil::receiver;
using vigil::select;
using vigil::select_ordered;
using vigil::sender;
using vigil::sleep_for;
using vigil::spawn;
using vigil::testing::settle;

namespace {

channel<int> with_value(int v, std::size_t capacity = 1) {
  auto c = make_channel<int>(capacity);
  c.send(v);
  return c;
}

channel<int> closed_channel() {
  auto c = make_channel<int>();
  c.close();
  return c;
}

// 1 in 10^9 of fair draws would fail: six sigma, as in Go's own test.
void check_share(int got, int total, int of) {
  const double p = 1.0 / of;
  const double sigma = std::sqrt(total * p * (1 - p));
  CHECK(got > total * p - 6 * sigma);
  CHECK(got < total * p + 6 * sigma);
}

// --- power series, coefficient by coefficient; Go: chan/powser1.go

struct rational {
  std::int64_t over = 0;
  std::int64_t under = 1;

  friend rational operator+(rational a, rational b) {
    return reduced(times(a.over, b.under) + times(b.over, a.under), times(a.under, b.under));
  }

  friend rational operator*(rational a, rational b) {
    return reduced(times(a.over, b.over), times(a.under, b.under));
  }

  friend bool operator==(rational, rational) = default;

 private:
  __extension__ using wide = __int128;

  static wide times(std::int64_t a, std::int64_t b) { return static_cast<wide>(a) * b; }

  // Fibers work ahead of who looks at their coefficients; what has become too
  // large there is nothing.
  static rational reduced(wide over, wide under) {
    wide divisor = over < 0 ? -over : over;
    for (wide rest = under; rest != 0;)
      divisor = std::exchange(rest, divisor % rest);
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    over /= divisor;
    under /= divisor;
    if (over > most || over < -most || under > most) return {0, 1};
    return {static_cast<std::int64_t>(over), static_cast<std::int64_t>(under)};
  }
};

using series = receiver<rational>;

series from(std::function<rational(int)> coefficient) {
  const auto out = make_channel<rational>();
  go([out, f = std::move(coefficient)] {
    for (int n = 0;; ++n)
      out.send(f(n));
  });
  return out;
}

rational next(const series& s) {
  return s.recv().value();
}

// The same series twice, for two who take it at different speeds.
std::pair<series, series> split(series in) {
  const std::array<channel<rational>, 2> out{make_channel<rational>(), make_channel<rational>()};
  go([in, out] {
    std::array<std::deque<rational>, 2> kept;
    const series nothing;
    const channel<rational> nobody;
    for (;;) {
      const bool a = !kept[0].empty();
      const bool b = !kept[1].empty();
      const rational front_a = a ? kept[0].front() : rational();
      const rational front_b = b ? kept[1].front() : rational();
      select(on_recv(a && b ? nothing : in,
                     [&](std::optional<rational> v) {
                       kept[0].push_back(*v);
                       kept[1].push_back(*v);
                     }),
             on_send(a ? out[0] : nobody, front_a, [&] { kept[0].pop_front(); }),
             on_send(b ? out[1] : nobody, front_b, [&] { kept[1].pop_front(); }));
    }
  });
  return {out[0], out[1]};
}

series sum(series u, series v) {
  return from([u, v](int) { return next(u) + next(v); });
}

// u0 v0 + x (u0 V + v0 U + x U V), where U and V are the rest of each.
series product(series u, series v) {
  const auto out = make_channel<rational>();
  go([u, v, out] {
    const rational u0 = next(u);
    const rational v0 = next(v);
    out.send(u0 * v0);
    const auto [u1, u2] = split(u);
    const auto [v1, v2] = split(v);
    out.send(u0 * next(v1) + v0 * next(u1));
    const series rest = product(u2, v2);
    for (;;)
      out.send(u0 * next(v1) + v0 * next(u1) + next(rest));
  });
  return out;
}

series integral(series u, rational constant) {
  return from([u, constant](int n) { return n == 0 ? constant : next(u) * rational{1, n}; });
}

// The series that is f of itself.
series fixed_point(const std::function<series(series)>& f) {
  const auto back = make_channel<rational>();
  const auto [result, fed_back] = split(f(back));
  go([back, s = fed_back] {
    for (;;)
      back.send(next(s));
  });
  return result;
}

}  // namespace

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

  // --- the draw

  // Go: TestSelectFairness, for every mix of kinds.
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
      check_share(pairs, n, 3);          // one draw says nothing of the next
    };
    draw();
    in_runtime({.workers = {1, 2}}, draw);
  }

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

  TEST_CASE("select_ordered takes the first of those that are ready, every time") {
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
          // So that a look which takes its time has time.
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

  // The other way round: somebody can always send into one of two.
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

  TEST_CASE("select_ordered never prefers what became ready later") {
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
          // So that a look which takes its time has time.
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

  // --- closed and nil: Go, chan/select3.go and closedchan.go

  TEST_CASE("a nil channel is never chosen, and a select of nothing else waits for ever") {
    in_virtual([] {
      const channel<int> nil;
      CHECK(waits([&] { select(on_recv(nil)); }));
      CHECK(waits([&] { select(on_send(nil, 1)); }));
      CHECK(waits([&] { select(on_recv(nil), on_send(nil, 1), on_recv(receiver<void>())); }));
      CHECK(select(on_recv(nil), otherwise()) == 1);
      CHECK(select(on_send(nil, 1), on_recv(nil), otherwise()) == 2);
      CHECK(select(on_send(nil, 1), on_recv(with_value(1)), on_recv(nil)) == 1);
      const auto start = vigil::clock::now();
      CHECK(select(on_send(nil, 1), on_timeout(1s), on_recv(nil)) == 1);
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("a case is switched off by a nil channel in its place") {
    in_virtual([] {
      auto a = make_channel<int>();
      auto b = make_channel<int>();
      go([a] {
        for (int i = 0; i < 5; ++i)
          a.send(i);
        a.close();
      });
      go([b] {
        for (int i = 0; i < 7; ++i)
          b.send(i);
        b.close();
      });
      int n = 0;
      while (a || b) {
        select(on_recv(a, [&](std::optional<int> v) { v ? void(++n) : void(a = {}); }),
               on_recv(b, [&](std::optional<int> v) { v ? void(++n) : void(b = {}); }));
      }
      CHECK(n == 12);
    });
  }

  TEST_CASE("without cases it waits until the fiber is stopped") {
    in_virtual([] {
      CHECK(waits([] { select(); }));
      CHECK(waits([] {
        vigil::case_list none;
        select(none);
      }));
    });
  }

  TEST_CASE("without cases, or with nil ones only, in every fiber it is a deadlock") {
    CHECK_THROWS_AS(vigil::testing::run_virtual([] { select(); }), vigil::deadlock);
    CHECK_THROWS_AS(vigil::testing::run_virtual([] {
                      go([] { select(on_recv(channel<int>()), on_send(channel<int>(), 1)); });
                      select_ordered();
                    }),
                    vigil::deadlock);
    vigil::options o;
    o.workers = 2;
    o.deadlock = vigil::on_deadlock::fatal;
    CHECK_THROWS_AS(vigil::run(o, [] { select(on_recv(make_channel<int>())); }), vigil::deadlock);
    // With a timeout among them it is none.
    vigil::testing::run_virtual([] { select(on_recv(channel<int>()), on_timeout(24h)); });
  }

  TEST_CASE("a closed channel is always ready to receive, first its values, then nothing") {
    in_virtual([] {
      const auto c = make_channel<int>(2);
      c.send(1);
      c.send(2);
      c.close();
      std::vector<int> got;
      const auto keep = [&](std::optional<int> v) { got.push_back(v.value_or(-1)); };
      for (int i = 0; i < 2; ++i) {
        CHECK(select(on_recv(c, keep)) == 0);
        CHECK(select(on_recv(c, keep), otherwise()) == 0);
      }
      CHECK(select(on_recv(make_channel<int>()), on_recv(c, keep), on_timeout(1s)) == 1);
      CHECK(got == std::vector{1, 2, -1, -1, -1});
      const auto v = make_channel<void>(1);
      v.send();
      v.close();
      std::vector<bool> heard;
      for (int i = 0; i < 2; ++i)
        select(on_recv(v, [&](bool something) { heard.push_back(something); }));
      CHECK(heard == std::vector{true, false});
    });
  }

  TEST_CASE("a send case of a closed channel throws when it is drawn, the value is kept") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>(1);
      c.close();
      auto value = std::make_unique<int>(1);
      const auto never = make_channel<int>();
      bool called = false;
      const auto call = [&] { called = true; };
      CHECK_THROWS_AS(select(on_send(c, std::move(value), call)), channel_closed);
      CHECK_THROWS_AS(select(on_send(c, std::move(value), call), otherwise()), channel_closed);
      CHECK_THROWS_AS(select(on_recv(never), on_send(c, std::move(value), call)), channel_closed);
      CHECK(value != nullptr);
      CHECK_FALSE(called);
      CHECK(c.size() == 0);
      check_nobody_waits(never);
    });
  }

  TEST_CASE("a close ends a select that waits: a receive with nothing, a send with the error") {
    for_each_seed(20, [] {
      const auto c = make_channel<std::unique_ptr<int>>();
      const auto other = make_channel<int>();
      auto f = spawn([&] {
        bool nothing = false;
        CHECK(select(on_recv(other), on_recv(c, [&](auto v) { nothing = !v; })) == 1);
        CHECK(nothing);
      });
      settle();
      c.close();
      f.join();
      const auto d = make_channel<std::unique_ptr<int>>();
      auto g = spawn([&] {
        auto value = std::make_unique<int>(3);
        CHECK_THROWS_AS(select(on_send(d, std::move(value)), on_recv(other)), channel_closed);
        CHECK(value != nullptr);
        wipe_stack_below();
      });
      settle();
      d.close();
      g.join();
      check_nobody_waits(other);
    });
  }

  // --- operands and functions

  // Go: chan/select.go, select5.go.
  TEST_CASE("every operand is evaluated once, also of nil channels and cases not taken") {
    in_virtual([] {
      int evaluated = 0;
      const auto c = make_channel<int>(1);
      const auto ch = [&](channel<int> x) {
        ++evaluated;
        return x;
      };
      const auto value = [&](int v) {
        ++evaluated;
        return v;
      };
      const channel<int> nil;
      select(on_send(ch(c), value(1)), on_recv(ch(nil)));
      CHECK(evaluated == 3);
      select(on_recv(ch(c)), on_send(ch(nil), value(2)), otherwise());
      CHECK(evaluated == 6);
      select(on_send(ch(nil), value(3)), on_send(ch(nil), value(4)), otherwise());
      CHECK(evaluated == 10);
    });
  }

  TEST_CASE("in a list the operands are evaluated in the order in which they are added") {
    in_virtual([] {
      std::string order;
      const auto c = make_channel<int>(1);
      const auto ch = [&](char name) {
        order += name;
        return c;
      };
      vigil::case_list list;
      CHECK(list.add(on_recv(ch('a'))) == 0);
      CHECK(list.add(on_recv(ch('b'))) == 1);
      CHECK(list.add(otherwise()) == 2);
      CHECK(list.size() == 3);
      CHECK(order == "ab");
      CHECK(select(list) == 2);
      CHECK(order == "ab");
      list.clear();
      CHECK(list.size() == 0);
    });
  }

  // Go: chan/select4.go.
  TEST_CASE("only the function of the case taken is called, after everything else is undone") {
    in_virtual([] {
      const auto full = with_value(1);
      const auto empty = make_channel<int>();
      bool wrong = false;
      select(on_recv(empty, [&] { wrong = true; }),
             on_recv(full,
                     [&](std::optional<int>) {
                       check_nobody_waits(empty);
                       // So it may wait, and select, itself.
                       CHECK(select(on_recv(empty), on_timeout(1s)) == 1);
                     }),
             on_send(empty, 1, [&] { wrong = true; }));
      CHECK_FALSE(wrong);
      // The same for one that had to wait.
      auto f = spawn([&] {
        select(on_recv(empty,
                       [&](std::optional<int> v) {
                         CHECK(v == 9);
                         check_nobody_waits(empty);
                         sleep_for(1s);
                       }),
               on_send(empty, 1));
      });
      settle();
      CHECK(empty.try_send(9));
      f.join();
    });
  }

  // Go: chan/select7.go.
  TEST_CASE("a plain, a single-case and a two-case form of send meet the same forms of receive") {
    in_virtual([] {
      const channel<int> nil;
      const auto dummy = make_channel<int>();
      using operation = void (*)(const channel<int>&, const channel<int>&);
      constexpr std::array<operation, 3> sends{
          [](const channel<int>& c, const channel<int>&) { c.send(1); },
          [](const channel<int>& c, const channel<int>&) { select(on_send(c, 1)); },
          [](const channel<int>& c, const channel<int>& d) { select(on_send(c, 1), on_recv(d)); }};
      constexpr std::array<operation, 4> receives{
          [](const channel<int>& c, const channel<int>&) { static_cast<void>(c.recv()); },
          [](const channel<int>& c, const channel<int>&) { select(on_recv(c)); },
          [](const channel<int>& c, const channel<int>& d) { select(on_recv(c), on_recv(d)); },
          [](const channel<int>& c, const channel<int>& d) {
            select(on_recv(d), on_recv(c, [](std::optional<int> v) { CHECK(v == 1); }));
          }};
      for (const operation send : sends) {
        for (const operation recv : receives) {
          for (const bool send_first : {false, true}) {
            const auto c = make_channel<int>();
            auto f = spawn([&] { send_first ? send(c, dummy) : recv(c, dummy); });
            settle();
            send_first ? recv(c, dummy) : send(c, dummy);
            f.join();
            check_nobody_waits(c);
            check_nobody_waits(dummy);
          }
        }
      }
    });
  }

  TEST_CASE("a value that was not sent stays in the caller's hand, an lvalue is copied") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>();
      const auto d = make_channel<std::unique_ptr<int>>(1);
      auto a = std::make_unique<int>(1);
      auto b = std::make_unique<int>(2);
      CHECK(select(on_send(c, std::move(a)), otherwise()) == 1);
      CHECK(select(on_send(c, std::move(a)), on_timeout(1s)) == 1);
      CHECK(select(on_send(c, std::move(a)), on_send(d, std::move(b))) == 1);
      CHECK(a != nullptr);
      CHECK(b == nullptr);
      CHECK(**d.recv() == 2);
      auto f = spawn([&] {
        CHECK_THROWS_AS(select(on_send(c, std::move(a)), on_recv(d)), vigil::stopped);
        CHECK(a != nullptr);
      });
      settle();
      f.request_stop();
      f.join();
      const auto texts = make_channel<std::string>(2);
      std::string text = "a text that is too long for the string itself to hold";
      select(on_send(texts, text));
      CHECK(!text.empty());
      select(on_send(texts, "another"));  // made into a string at once
      CHECK(texts.recv() == text);
      CHECK(texts.recv() == "another");
    });
  }

  TEST_CASE("functions may take the value or leave it, and be left out") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>(4);
      for (int i = 0; i < 4; ++i)
        c.send(std::make_unique<int>(i));
      std::unique_ptr<int> mine;
      select(on_recv(c, [&](std::optional<std::unique_ptr<int>> v) { mine = std::move(*v); }));
      CHECK(*mine == 0);
      int calls = 0;
      select(on_recv(c, [&] { ++calls; }));
      select(on_recv(c, [&, only_moved = std::move(mine)](auto v) mutable {
        ++calls;
        CHECK(**v == 2);
        only_moved.reset();
      }));
      select(on_recv(c));
      CHECK(calls == 2);
      CHECK(c.size() == 0);
      const sender<void> in = make_channel<void>(1);
      CHECK(select(on_send(in, [&] { ++calls; }), otherwise()) == 0);
      CHECK(select(on_send(in), otherwise()) == 1);
      CHECK(calls == 3);
    });
  }

  // --- timeouts

  TEST_CASE("a timeout ends it exactly then, and every queue forgets it") {
    in_virtual([] {
      const auto a = make_channel<int>();
      const auto b = with_value(1);
      const auto start = vigil::clock::now();
      CHECK(select(on_recv(a), on_send(a, 1), on_send(b, 2), on_timeout(3s)) == 3);
      CHECK(since(start) == 3s);
      CHECK(b.recv() == 1);
      check_nobody_waits(a);
      check_nobody_waits(b);
      CHECK(select(on_timeout(2s)) == 0);
      CHECK(since(start) == 5s);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("a timeout of zero or less is taken only when nothing is ready") {
    in_virtual([] {
      const auto closed = closed_channel();
      const auto never = make_channel<int>();
      const auto start = vigil::clock::now();
      for (const auto d : {0ns, -1ns, std::chrono::nanoseconds::min()}) {
        for (int i = 0; i < 20; ++i) {
          CHECK(select(on_timeout(d), on_recv(closed)) == 1);
          CHECK(select(on_timeout(d), on_recv(never)) == 0);
          CHECK(select(on_deadline(start + d), on_recv(closed)) == 1);
        }
        CHECK(select(on_recv(never), on_deadline(start + d)) == 1);
        CHECK(select(on_timeout(d)) == 0);
      }
      CHECK(since(start) == 0s);
      check_nobody_waits(never);
    });
  }

  TEST_CASE("of two timeouts the earlier wins, wherever it stands and however it is said") {
    in_virtual([] {
      const auto never = make_channel<int>();
      const auto now = [] { return vigil::clock::now(); };
      auto start = now();
      CHECK(select(on_timeout(2s), on_recv(never), on_timeout(1s)) == 2);
      CHECK(since(start) == 1s);
      start = now();
      CHECK(select(on_timeout(1s), on_recv(never), on_timeout(2s)) == 0);
      CHECK(since(start) == 1s);
      start = now();
      CHECK(select(on_deadline(start + 3s), on_timeout(1s)) == 1);
      CHECK(since(start) == 1s);
      start = now();
      CHECK(select(on_timeout(3s), on_deadline(start + 1s), on_timeout(2s)) == 1);
      CHECK(since(start) == 1s);
      CHECK(select(on_timeout(std::chrono::hours::max()), on_timeout(1s)) == 1);
      CHECK(select(on_timeout(1s), on_deadline(vigil::clock::time_point::max())) == 0);
      start = now();
      CHECK(select(on_timeout(1s), on_deadline(start - 1s), on_timeout(0s)) == 1);
      CHECK(since(start) == 0s);
      CHECK(select(on_timeout(1s), otherwise(), on_timeout(0s)) == 1);
      // Equal ones: the first.
      CHECK(select(on_timeout(1s), on_timeout(1s)) == 0);
      start = now();
      CHECK(select(on_deadline(start + 1s), on_timeout(1s)) == 0);
    });
  }

  TEST_CASE("a timeout beyond the range of the clock never comes") {
    in_virtual([] {
      const auto c = make_channel<int>();
      auto f =
          spawn([&] { return select(on_timeout(std::chrono::nanoseconds::max()), on_recv(c)); });
      auto g = spawn([&] { return select(on_deadline(vigil::clock::time_point::max())); });
      sleep_for(24h * 365 * 100);
      CHECK_FALSE(f.join_for(0s));
      CHECK_FALSE(g.join_for(0s));
      c.send(1);
      CHECK(f.join() == 1);
      g.request_stop();
      CHECK_THROWS_AS(g.join(), vigil::cancelled);
    });
  }

  TEST_CASE("one deadline serves a whole loop of selects") {
    in_virtual([] {
      const auto c = make_channel<int>();
      go([c] {
        for (int i = 0;; ++i) {
          sleep_for(300ms);
          c.send(i);
        }
      });
      const auto start = vigil::clock::now();
      int got = 0;
      for (bool done = false; !done;)
        select(on_recv(c, [&] { ++got; }), on_deadline(start + 1s, [&] { done = true; }));
      CHECK(got == 3);
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("a point of another clock serves as a deadline") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      CHECK(select(on_deadline(std::chrono::steady_clock::now() + 1h)) == 0);
      CHECK(since(start) > 59min);
      CHECK(since(start) <= 1h);
    });
  }

  TEST_CASE("a real timeout is never early, on a fiber or a thread") {
    const auto tries = [] {
      const auto c = make_channel<int>();
      seeded dice(9);
      for (int i = 0; i < rounds(200); ++i) {
        const std::chrono::nanoseconds d(1 + dice.below(100'000));
        const auto start = vigil::clock::now();
        REQUIRE(select(on_recv(c), on_timeout(d), on_send(c, 1)) == 1);
        REQUIRE(since(start) >= d);
        const auto deadline = vigil::clock::now() + d;
        REQUIRE(select(on_timeout(1h), on_deadline(deadline)) == 1);
        REQUIRE(vigil::clock::now() >= deadline);
      }
      check_nobody_waits(c);
    };
    tries();
    in_runtime({.workers = {1, 2}}, tries);
  }

  TEST_CASE("the channel of a timer is looked at by the clock, also where nothing is waited for") {
    in_virtual([] {
      const auto t = vigil::after(1s);
      CHECK(select(on_recv(t), otherwise()) == 1);
      CHECK(select(on_recv(t), on_timeout(999'999'999ns)) == 1);
      CHECK(select(on_recv(t), otherwise()) == 1);
      sleep_for(1ns);
      CHECK(select(on_recv(t), otherwise()) == 0);
      CHECK(select(on_recv(t), otherwise()) == 1);
    });
    in_runtime({.workers = {1, 2}}, [] {
      for (int i = 0; i < rounds(500); ++i) {
        const auto before = vigil::clock::now();
        const auto t = vigil::after(std::chrono::microseconds(i % 20));
        const auto due = vigil::clock::now() + std::chrono::microseconds(i % 20);
        while (vigil::clock::now() < due) {
        }
        REQUIRE(select(on_recv(t,
                               [&](std::optional<vigil::clock::time_point> at) {
                                 REQUIRE(at >= before + std::chrono::microseconds(i % 20));
                               }),
                       otherwise()) == 0);
      }
    });
  }

  TEST_CASE("a timer that is due has its share of the draws beside cases that are always ready") {
    const auto tries = [](int n, auto until) {
      const auto closed = closed_channel();
      int drawn = 0;
      for (int i = 0; i < n; ++i) {
        const auto t = vigil::after(10us);
        until(vigil::clock::now() + 10us);
        REQUIRE(select_ordered(on_recv(t), on_recv(closed)) == 0);
        const auto u = vigil::after(10us);
        until(vigil::clock::now() + 10us);
        drawn += select(on_recv(closed), on_recv(u)) == 1 ? 1 : 0;
      }
      check_share(drawn, n, 2);
    };
    in_virtual([&] { tries(rounds(2000), [](auto t) { vigil::sleep_until(t); }); });
    in_runtime({.workers = {1, 2}}, [&] {
      tries(rounds(2000), [](auto t) {
        while (vigil::clock::now() < t) {
        }
      });
    });
  }

  // --- stop

  TEST_CASE("a stop ends it by stopped, and every queue forgets it") {
    for_each_seed(20, [] {
      const auto a = make_channel<int>();
      const auto b = make_channel<int>();
      bool called = false;
      auto f = spawn([&] {
        const auto call = [&] { called = true; };
        try {
          select(on_recv(a, call), on_send(b, 1, call), on_timeout(1h, call), on_recv(a, call));
        } catch (const vigil::stopped&) {
          wipe_stack_below();
          throw;
        }
      });
      settle();
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK_FALSE(called);
      check_nobody_waits(a);
      check_nobody_waits(b);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("while stopping a case that is ready is still taken, otherwise it throws") {
    in_virtual([] {
      const auto full = make_channel<int>(3);
      for (int i = 0; i < 3; ++i)
        full.send(i);
      const auto never = make_channel<int>();
      auto f = spawn([&] {
        try {
          sleep_for(1h);
        } catch (const vigil::stopped&) {
        }
        int sum = 0;
        while (select(on_recv(full, [&](std::optional<int> v) { sum += v.value(); }),
                      on_recv(never),
                      otherwise()) == 0) {
        }
        CHECK(sum == 3);
        CHECK(select(on_recv(never), on_timeout(0s)) == 1);
        CHECK(select(on_recv(closed_channel()), on_timeout(1h)) == 0);
        CHECK_THROWS_AS(select(on_recv(never), on_timeout(1s)), vigil::stopped);
        CHECK_THROWS_AS(select(on_recv(never)), vigil::stopped);
        CHECK_THROWS_AS(select(on_timeout(1s)), vigil::stopped);
        CHECK_THROWS_AS(select(), vigil::stopped);
        const vigil::this_fiber::shield shield;
        CHECK(select(on_recv(never), on_timeout(1ms)) == 1);
      });
      settle();
      f.request_stop();
      f.join();
      check_nobody_waits(never);
    });
  }

  TEST_CASE("fibers in the middle of any select are unwound by the shutdown") {
    for (const unsigned workers : {1u, 2u, 4u}) {
      const auto c = make_channel<std::unique_ptr<int>>();
      std::atomic<int> kept{0};
      in_runtime({.workers = {workers}}, [&] {
        for (int i = 0; i < 20; ++i) {
          go([&, i] {
            auto mine = std::make_unique<int>(i);
            try {
              i % 2 == 0 ? select(on_send(c, std::move(mine)), on_timeout(1h))
                         : select(on_recv(channel<int>()), on_send(c, std::move(mine)));
            } catch (const vigil::stopped&) {
              if (mine != nullptr) ++kept;
              throw;
            }
          });
        }
        for (int i = 0; i < 3; ++i)
          static_cast<void>(c.recv());
        // Half of them may not have come to their select yet; both will do.
      });
      CHECK(kept == 17);
      check_nobody_waits(c);
    }
  }

  // --- many

  // Go: chan/powser1.go, powser2.go.
  TEST_CASE("many fibers that select compute power series with exact coefficients") {
    const auto compute = [] {
      const auto ones = [] { return from([](int) { return rational{1, 1}; }); };
      const auto check = [](const series& s, const std::vector<rational>& expected) {
        for (const rational& r : expected)
          REQUIRE(next(s) == r);
      };
      check(sum(ones(), ones()), {{2, 1}, {2, 1}, {2, 1}, {2, 1}});
      check(product(ones(), ones()), {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}});
      check(integral(ones(), {}), {{0, 1}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}});
      check(fixed_point([](series e) {
              return integral(e, {1, 1});
            }),
            {{1, 1}, {1, 1}, {1, 2}, {1, 6}, {1, 24}, {1, 120}, {1, 720}, {1, 5040}});
      // tan' = 1 + tan^2
      check(
          fixed_point([](series t) {
            const auto [t1, t2] = split(t);
            const auto one = from([](int n) { return rational{n == 0 ? 1 : 0, 1}; });
            return integral(sum(one, product(t1, t2)), {});
          }),
          {{0, 1}, {1, 1}, {0, 1}, {1, 3}, {0, 1}, {2, 15}, {0, 1}, {17, 315}, {0, 1}, {62, 2835}});
    };
    for_each_seed(3, compute);
    in_runtime({.workers = {1, 2, 4}}, compute);
  }

  // Go: TestSelectStress.
  TEST_CASE("plain and selecting senders and receivers of four channels all come to their end") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const int n = many(2000);
      const std::array<channel<int>, 4> c{
          make_channel<int>(), make_channel<int>(), make_channel<int>(2), make_channel<int>(3)};
      std::vector<vigil::fiber<>> all;
      for (std::size_t k = 0; k < 4; ++k) {
        all.push_back(spawn([&, k] {
          for (int i = 0; i < n; ++i)
            c[k].send(i);
        }));
        all.push_back(spawn([&, k] {
          for (int i = 0; i < n; ++i)
            REQUIRE(c[k].recv().has_value());
        }));
      }
      all.push_back(spawn([&] {
        auto to = c;
        std::array<int, 4> sent{};
        for (int i = 0; i < 4 * n; ++i) {
          const std::size_t k = select(on_send(to[3], int{sent[3]}),
                                       on_send(to[2], int{sent[2]}),
                                       on_send(to[0], int{sent[0]}),
                                       on_send(to[1], int{sent[1]}));
          constexpr std::array<std::size_t, 4> which{3, 2, 0, 1};
          if (++sent[which[k]] == n) to[which[k]] = {};
        }
      }));
      all.push_back(spawn([&] {
        auto from = c;
        std::array<int, 4> got{};
        for (int i = 0; i < 4 * n; ++i) {
          const std::size_t k =
              select(on_recv(from[0]), on_recv(from[1]), on_recv(from[2]), on_recv(from[3]));
          if (++got[k] == n) from[k] = {};
        }
      }));
      for (auto& f : all)
        f.join();
      for (const auto& ch : c) {
        CHECK(ch.size() == 0);
        check_nobody_waits(ch);
      }
    });
  }

  TEST_CASE("fibers of two runtimes and plain threads may select on the same channels") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto a = make_channel<int>();
      const auto b = make_channel<int>(2);
      const int n = many(1000);
      std::atomic<std::int64_t> sum{0};
      std::atomic<int> senders{3};
      const auto send = [&] {
        for (int i = 1; i <= n; ++i)
          select(on_send(a, int{i}), on_send(b, int{i}));
        if (--senders == 0) {
          a.close();
          b.close();
        }
      };
      const auto recv = [&] {
        channel<int> x = a;
        channel<int> y = b;
        while (x || y) {
          select(on_recv(x, [&](std::optional<int> v) { v ? void(sum += *v) : void(x = {}); }),
                 on_recv(y, [&](std::optional<int> v) { v ? void(sum += *v) : void(y = {}); }));
        }
      };
      std::thread second([&] {
        vigil::options o;
        o.workers = 2;
        o.deadlock = vigil::on_deadlock::warn;
        vigil::run(o, [&] {
          auto f = spawn(send);
          recv();
          f.join();
        });
      });
      std::thread s(send);
      std::thread r(recv);
      auto f = spawn(send);
      recv();
      f.join();
      s.join();
      r.join();
      second.join();
      CHECK(sum == 3 * static_cast<std::int64_t>(n) * (n + 1) / 2);
    });
  }

  TEST_CASE("a list of hundreds of channels waits for all of them and takes the one that comes") {
    for_each_seed(3, [] {
      constexpr std::size_t n = 500;
      std::vector<channel<int>> all;
      vigil::case_list list;
      int got = -1;
      for (std::size_t i = 0; i < n; ++i) {
        all.push_back(make_channel<int>());
        list.add(on_recv(all.back(), [&](std::optional<int> v) { got = v.value(); }));
      }
      CHECK(list.add(on_timeout(1s)) == n);
      for (const std::size_t i : {std::size_t{0}, n / 2, n - 1, std::size_t{17}}) {
        auto f = spawn([&] { return select(list); });
        settle();
        all[i].send(static_cast<int>(i));
        CHECK(f.join() == i);
        CHECK(got == static_cast<int>(i));
        for (const auto& c : all)
          REQUIRE_FALSE(c.try_send(1));
      }
      CHECK(select(list) == n);
      for (const auto& c : all)
        check_nobody_waits(c);
    });
  }

  // Go: TestSelectMaxCases; there 65 536 is the most.
  TEST_CASE("a list may be longer than Go allows") {
    in_virtual([] {
      const auto one = make_channel<int>();
      vigil::case_list list;
      for (int i = 0; i < 70'000; ++i)
        list.add(on_recv(i % 2 == 0 ? one : channel<int>()));
      auto f = spawn([&] { return select(list); });
      settle();
      one.send(1);
      CHECK(f.join() % 2 == 0);
      check_nobody_waits(one);
    });
  }

  TEST_CASE("a list sends what its values are each time, moved-from ones when they were taken") {
    in_virtual([] {
      const auto c = make_channel<std::string>(1);
      std::string value = "first";
      vigil::case_list list;
      list.add(on_send(c, std::move(value)));
      list.add(otherwise());
      CHECK(select(list) == 0);
      CHECK(select(list) == 1);
      CHECK(c.recv() == "first");
      value = "second";
      CHECK(select(list) == 0);
      CHECK(c.recv() == "second");
    });
  }

  // Go: chan/select2.go, fixedbugs/issue9110.go.
  TEST_CASE("a million selects, timeouts among them, leave the memory as it was") {
#ifndef VIGIL_TEST_UNDER_SANITIZER  // which keeps what was freed
    in_virtual([] {
      const auto a = make_channel<int>();
      const auto b = make_channel<int>(1);
      go([b] {
        for (;;)
          b.send(1);
      });
      const auto work = [&](int n) {
        for (int i = 0; i < n; ++i) {
          select(on_recv(a), on_send(a, 1), on_recv(b));
          if (i % 8 == 0) select(on_recv(a), on_recv(a), on_recv(a), on_timeout(1us));
          if (i % 64 == 0) {
            const auto c = make_channel<int>();
            auto f = spawn([&] { select(on_recv(c), on_recv(c), on_recv(c), on_timeout(1h)); });
            settle();
            c.close();
            f.join();
          }
        }
      };
      work(10'000);
      const auto before = ::mallinfo2();
      const auto timers = vigil::stats();
      work(rounds(1'000'000));
      CHECK(::mallinfo2().uordblks <= before.uordblks + 100'000);
      CHECK(vigil::stats().heap_entries <= timers.heap_entries + 2'000);
    });
#endif
  }

  TEST_CASE("twenty thousand selects that wait on one channel leave it in any order") {
    in_virtual([] {
      const auto common = make_channel<int>();
      const int n = rounds(20'000);
      const auto own = make_channel<int>();
      std::vector<vigil::fiber<std::size_t>> all;
      for (int i = 0; i < n; ++i) {
        all.push_back(spawn([&, i] {
          return select(on_recv(common), on_recv(own), on_timeout(std::chrono::nanoseconds(n - i)));
        }));
      }
      settle();
      for (auto& f : all)
        CHECK(f.join() == 2);
      check_nobody_waits(common);
      check_nobody_waits(own);
    });
  }
}
