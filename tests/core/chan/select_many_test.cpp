// select: many fibers, two runtimes and plain threads, long lists, and memory.
#include "core/chan/chan_test.hpp"

#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <optional>

#include <malloc.h>

using namespace vigil::testing_support;

namespace {

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

  // Fibers work ahead of the readers of their coefficients; a number that has become too
  // large is dropped there.
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

// The same series twice, for two readers of different speeds.
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

// The series that is a fixed point of f.
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

  // Go: reflect TestSelectMaxCases.
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

  // There the most is 65 536.
  // Go: reflect TestSelectMaxCases.
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

  TEST_CASE("a list sends the current values each time, moved-from ones after they were taken") {
    in_virtual([] {
      const auto c = make_channel<std::string>(1);
      std::string value = "first";
      vigil::case_list list;
      list.add(on_send(c, std::ref(value)));
      list.add(otherwise());
      CHECK(select(list) == 0);
      CHECK(select(list) == 1);
      CHECK(c.recv() == "first");
      value = "second";
      CHECK(select(list) == 0);
      CHECK(c.recv() == "second");
    });
  }

  // Go: chan/select2.go; fixedbugs/issue9110.go.
  TEST_CASE("a million selects, timeouts among them, leave the memory as it was") {
#ifndef VIGIL_TEST_UNDER_SANITIZER  // a sanitizer keeps freed memory
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
