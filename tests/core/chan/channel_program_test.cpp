// Whole programs over channels, as Go's test/chan has them.
#include "core/chan/chan_test.hpp"

#include <array>

using namespace vigil::testing_support;

TEST_SUITE("channel") {
  // Go: TestMultiConsumer.
  TEST_CASE("many consumers range over one channel until it is closed and lose nothing") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      constexpr int consumers = 23;
      const int items = many(60'000);
      static constexpr std::array<int, 12> primes{2, 3, 5, 7, 11, 13, 17, 19, 23, 27, 31, 37};
      const auto q = make_channel<int>(consumers * 3);
      const auto r = make_channel<int>(consumers * 3);
      std::vector<vigil::fiber<>> workers;
      for (int w = 0; w < consumers; ++w) {
        workers.push_back(spawn([q, r, w] {
          for (const int v : q) {
            if (primes[static_cast<std::size_t>(w) % primes.size()] == v)
              vigil::this_fiber::yield();
            r.send(v);
          }
        }));
      }
      std::int64_t expected = 0;
      go([&] {
        for (int i = 0; i < items; ++i) {
          const int v = primes[static_cast<std::size_t>(i) % primes.size()];
          expected += v;
          q.send(v);
        }
        q.close();
        for (auto& w : workers)
          w.join();
        r.close();
      });
      int n = 0;
      std::int64_t sum = 0;
      for (const int v : r) {
        ++n;
        sum += v;
      }
      CHECK(n == items);
      CHECK(sum == expected);
    });
  }

  // Go: TestChanSendBarrier; TestChanSendSelectBarrier.
  TEST_CASE("a reply through a fresh channel is never lost beside much allocation") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      using reply = std::unique_ptr<std::vector<int>>;
      struct request {
        channel<reply> answer;
        int value;
      };
      const auto requests = make_channel<request>();
      for (int s = 0; s < 4; ++s) {
        go([requests, s] {
          for (request& r : requests) {
            auto v = std::make_unique<std::vector<int>>(1 + static_cast<std::size_t>(r.value % 50),
                                                        r.value);
            if (s % 2 == 0) {
              r.answer.send(std::move(v));
            } else {
              vigil::select(vigil::on_send(r.answer, std::move(v)), vigil::on_recv(channel<int>()));
            }
          }
        });
      }
      std::vector<vigil::fiber<>> clients;
      for (int i = 0; i < 20; ++i) {
        clients.push_back(spawn([requests, i] {
          for (int n = 0; n < many(1000); ++n) {
            const auto answer = make_channel<reply>();
            requests.send({answer, i + n});
            const auto got = answer.recv();
            REQUIRE(got.has_value());
            REQUIRE((*got)->back() == i + n);
          }
        }));
      }
      for (auto& c : clients)
        c.join();
      requests.close();
    });
  }

  // Go: chan/goroutines.go.
  TEST_CASE("one value goes through a chain of ten thousand fibers and all of them end") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const int n = rounds(10'000);
      const auto leftmost = make_channel<int>();
      channel<int> right = leftmost;
      for (int i = 0; i < n; ++i) {
        const channel<int> left = right;
        right = make_channel<int>();
        go([left, right] { left.send(1 + right.recv().value()); });
      }
      right.send(0);
      CHECK(leftmost.recv() == n);
    });
  }

  // Go: chan/sendstmt.go.
  TEST_CASE("a channel is a value that can be sent through a channel") {
    in_virtual([] {
      const auto outer = make_channel<channel<channel<int>>>(1);
      const auto middle = make_channel<channel<int>>();
      go([outer] {
        const auto m = outer.recv().value();
        const auto inner = m.recv().value();
        inner.send(42);
      });
      outer.send(middle);
      const auto inner = make_channel<int>();
      middle.send(inner);
      CHECK(inner.recv() == 42);
      const auto truth = make_channel<bool>(1);
      const int a = 3;
      truth.send(a == 3 && outer.size() == 0);
      CHECK(truth.recv() == true);
    });
  }

  // Go: chan/sieve1.go.
  TEST_CASE("a chain of filters sieves the primes") {
    for_each_seed(3, [] {
      auto numbers = make_channel<int>();
      go([numbers] {
        for (int i = 2;; ++i)
          numbers.send(i);
      });
      constexpr std::array<int, 25> primes{2,  3,  5,  7,  11, 13, 17, 19, 23, 29, 31, 37, 41,
                                           43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97};
      for (const int p : primes) {
        REQUIRE(numbers.recv() == p);
        const auto rest = make_channel<int>();
        go([numbers, rest, p] {
          for (const int i : numbers) {
            if (i % p != 0) rest.send(i);
          }
        });
        numbers = rest;
      }
    });
  }

  // With a heap instead of a ring of pairs.
  // Go: chan/sieve2.go.
  TEST_CASE("a sieve whose primes feed themselves back gives the same primes") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      // Multiples of p, merged by a chain: merge(a, b) yields each number once.
      const auto multiples = [](int p) {
        const auto out = make_channel<int>(2);
        go([out, p] {
          for (int n = p * p; n < 300; n += p)
            out.send(n);
          out.close();
        });
        return receiver<int>(out);
      };
      const auto merge = [](receiver<int> a, receiver<int> b) {
        const auto out = make_channel<int>(2);
        go([out, a, b] {
          auto x = a.recv();
          auto y = b.recv();
          while (x || y) {
            const int least = !y || (x && *x < *y) ? *x : *y;
            out.send(least);
            if (x && *x == least) x = a.recv();
            if (y && *y == least) y = b.recv();
          }
          out.close();
        });
        return receiver<int>(out);
      };
      receiver<int> composites = multiples(2);
      for (const int p : {3, 5, 7, 11, 13, 17})
        composites = merge(composites, multiples(p));
      std::vector<int> primes;
      auto next = composites.recv();
      for (int i = 2; i < 100; ++i) {
        if (next == i) {
          next = composites.recv();
        } else {
          primes.push_back(i);
        }
      }
      CHECK(primes == std::vector{2,  3,  5,  7,  11, 13, 17, 19, 23, 29, 31, 37, 41,
                                  43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97});
      for (const int n : composites)
        CHECK(n > 97);
    });
  }

  // Go: ken/chan1.go.
  TEST_CASE("each message of one sender is received by exactly one of many") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const int n = many(10'000);
      const auto c = make_channel<int>();
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
      std::vector<vigil::fiber<>> readers;
      for (int r = 0; r < 10; ++r) {
        readers.push_back(spawn([&, c] {
          for (const int v : c)
            seen[static_cast<std::size_t>(v)].fetch_add(1);
        }));
      }
      for (int i = 0; i < n; ++i)
        c.send(i);
      c.close();
      for (auto& r : readers)
        r.join();
      for (const auto& s : seen)
        REQUIRE(s.load() == 1);
    });
  }
}
