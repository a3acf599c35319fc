// Channels: what Go's chan_test.go and test/chan check.
#include "chan/chan_test.hpp"

#include <vigil/channel.hpp>
#include <vigil/select.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::channel;
using vigil::channel_closed;
using vigil::channel_status;
using vigil::go;
using vigil::make_channel;
using vigil::receiver;
using vigil::sender;
using vigil::sleep_for;
using vigil::spawn;
using vigil::testing::settle;

namespace {

constexpr std::size_t most_slots = 20;  // capacities 0 … 20 are tried

template <class H, class T>
concept can_send = requires(const H& h, T v) {
  h.send(std::move(v));
};

template <class H, class T>
concept can_try_send = requires(const H& h, T v) {
  h.try_send(std::move(v));
  h.send_for(std::move(v), 1s);
  h.send_until(std::move(v), vigil::clock::now());
};

template <class H, class T>
concept can_send_copy = requires(const H& h, const T& v) {
  h.send(v);
};

template <class H>
concept can_signal = requires(const H& h) {
  h.send();
};

template <class H>
concept can_recv = requires(const H& h) {
  h.recv();
};

template <class H>
concept can_try_recv = requires(const H& h) {
  h.try_recv();
  h.recv_for(1s);
  h.recv_until(vigil::clock::now());
};

template <class H>
concept can_close = requires(const H& h) {
  h.close();
};

template <class H>
concept can_be_ranged_over = requires(const H& h) {
  h.begin();
  h.end();
};

template <class T>
constexpr bool has_gos_permissions() {
  using unit = std::conditional_t<std::is_void_v<T>, int, T>;
  if constexpr (!std::is_void_v<T>) {
    static_assert(can_send<channel<T>, unit> && can_try_send<channel<T>, unit>);
    static_assert(can_send<sender<T>, unit> && can_try_send<sender<T>, unit>);
    static_assert(!can_send<receiver<T>, unit> && !can_try_send<receiver<T>, unit>);
    static_assert(can_be_ranged_over<channel<T>> && can_be_ranged_over<receiver<T>>);
  } else {
    static_assert(can_signal<channel<T>> && can_signal<sender<T>> && !can_signal<receiver<T>>);
  }
  static_assert(can_recv<channel<T>> && can_try_recv<channel<T>> && can_close<channel<T>>);
  static_assert(!can_recv<sender<T>> && !can_try_recv<sender<T>> && can_close<sender<T>>);
  static_assert(!can_be_ranged_over<sender<T>>);
  static_assert(can_recv<receiver<T>> && can_try_recv<receiver<T>> && !can_close<receiver<T>>);
  // A channel becomes either half, a half becomes nothing else.
  static_assert(std::is_convertible_v<channel<T>, sender<T>>);
  static_assert(std::is_convertible_v<channel<T>, receiver<T>>);
  static_assert(!std::is_constructible_v<channel<T>, sender<T>>);
  static_assert(!std::is_constructible_v<channel<T>, receiver<T>>);
  static_assert(!std::is_constructible_v<receiver<T>, sender<T>>);
  static_assert(!std::is_constructible_v<sender<T>, receiver<T>>);
  // No channel of one type for one of another.
  static_assert(!std::is_constructible_v<sender<T>, channel<long double>>);
  return true;
}

struct nothing_in_it {};

struct alignas(32) wide {
  std::array<std::uint64_t, 24> words{};
};

std::size_t sizes_sum(const std::vector<int>& v) {
  std::size_t n = 0;
  for (const int x : v)
    n += static_cast<std::size_t>(x);
  return n;
}

}  // namespace

TEST_SUITE("channel") {
  // --- Go: TestChan, for every capacity

  TEST_CASE("an empty one makes a receiver wait and refuses a try, at every capacity") {
    in_virtual([] {
      for (std::size_t n = 0; n <= most_slots; ++n) {
        const auto c = make_channel<int>(n);
        CHECK(c.try_recv().status() == channel_status::not_ready);
        CHECK(waits([&] { c.recv(); }));
        CHECK(c.try_recv().status() == channel_status::not_ready);
      }
    });
  }

  TEST_CASE("a full one makes a sender wait and refuses a try, at every capacity") {
    in_virtual([] {
      for (std::size_t n = 0; n <= most_slots; ++n) {
        const auto c = make_channel<int>(n);
        for (std::size_t i = 0; i < n; ++i)
          CHECK(c.try_send(static_cast<int>(i)));
        CHECK(c.try_send(99).status() == channel_status::not_ready);
        CHECK(waits([&] { c.send(99); }));
        CHECK(c.size() == n);
        for (std::size_t i = 0; i < n; ++i)
          CHECK(c.recv() == static_cast<int>(i));
        CHECK(c.try_recv().status() == channel_status::not_ready);
      }
    });
  }

  TEST_CASE("a closed one gives what is in its buffer in order, then nothing for ever") {
    in_virtual([] {
      for (std::size_t n = 0; n <= most_slots; ++n) {
        const auto c = make_channel<int>(n);
        for (std::size_t i = 0; i < n; ++i)
          c.send(static_cast<int>(i));
        c.close();
        CHECK(c.size() == n);
        for (std::size_t i = 0; i < n; ++i)
          CHECK(c.recv() == static_cast<int>(i));
        for (int again = 0; again < 3; ++again) {
          CHECK(c.recv() == std::nullopt);
          CHECK(c.try_recv().is_closed());
          CHECK(c.recv_for(1s).is_closed());
          CHECK(c.recv_until(vigil::clock::now()).is_closed());
        }
      }
    });
  }

  TEST_CASE("close ends the wait of every receiver with nothing") {
    for_each_seed(20, [] {
      for (const std::size_t n : {0u, 1u, 7u}) {
        const auto c = make_channel<int>(n);
        std::vector<vigil::fiber<bool>> all;
        for (int i = 0; i < 5; ++i)
          all.push_back(spawn([c] { return c.recv().has_value(); }));
        all.push_back(spawn([c] { return !c.recv_for(1h).is_closed(); }));
        settle();
        c.close();
        for (auto& f : all)
          CHECK_FALSE(f.join());
      }
    });
  }

  TEST_CASE("a hundred values come in the order they were sent, at every capacity and seed") {
    for_each_seed(10, [] {
      for (std::size_t n = 0; n <= most_slots; ++n) {
        const auto c = make_channel<int>(n);
        go([c] {
          for (int i = 0; i < 100; ++i)
            c.send(i);
        });
        for (int i = 0; i < 100; ++i)
          REQUIRE(c.recv() == i);
      }
    });
  }

  TEST_CASE("four senders and four receivers: each value arrives four times") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      for (const std::size_t n : {0u, 1u, 3u, 10u, 199u}) {
        const auto c = make_channel<int>(n);
        const int l = many(1000);
        std::vector<vigil::fiber<std::vector<int>>> readers;
        std::vector<vigil::fiber<>> writers;
        for (int p = 0; p < 4; ++p) {
          writers.push_back(spawn([c, l] {
            for (int i = 0; i < l; ++i)
              c.send(i);
          }));
          readers.push_back(spawn([c, l] {
            std::vector<int> got(static_cast<std::size_t>(l));
            for (int i = 0; i < l; ++i) {
              const auto v = c.recv();
              REQUIRE(v.has_value());
              ++got[static_cast<std::size_t>(*v)];
            }
            return got;
          }));
        }
        std::vector<int> sum(static_cast<std::size_t>(l));
        for (auto& r : readers) {
          const auto got = r.join();
          for (std::size_t i = 0; i < got.size(); ++i)
            sum[i] += got[i];
        }
        for (auto& w : writers)
          w.join();
        CHECK(std::set<int>(sum.begin(), sum.end()) == std::set<int>{4});
        CHECK(sizes_sum(sum) == static_cast<std::size_t>(4 * l));
      }
    });
  }

  // Go: TestChan, chancap.go.
  TEST_CASE("size counts what is in the buffer and capacity never changes") {
    in_virtual([] {
      for (std::size_t n = 0; n <= most_slots; ++n) {
        const auto c = make_channel<int>(n);
        const receiver<int> out = c;
        const sender<int> in = c;
        CHECK(c.capacity() == n);
        for (std::size_t i = 0; i < n; ++i) {
          CHECK(c.size() == i);
          in.send(1);
        }
        CHECK(out.size() == n);
        CHECK(in.size() == n);
        // One who waits to send is not in the buffer.
        CHECK(waits([&] {
          if (n != 0) CHECK(c.size() == n);
          c.send(1);
        }));
        for (std::size_t i = n; i > 0; --i) {
          CHECK(c.size() == i);
          CHECK(c.recv() == 1);
        }
        CHECK(c.size() == 0);
        CHECK(c.capacity() == n);
        c.close();
        CHECK(out.capacity() == n);
      }
    });
  }

  // Go: TestNonblockRecvRace.
  TEST_CASE("a try that races with a close never finds a channel that is neither") {
    channel<int> c;
    std::atomic<int> not_ready{0};
    race(
        many(10'000),
        [&](int) {
          c = make_channel<int>(1);
          c.send(1);
        },
        [&](int) {
          if (c.try_recv().status() == channel_status::not_ready) ++not_ready;
        },
        [&](int) {
          c.close();
          static_cast<void>(c.recv());
        },
        [](int) {});
    CHECK(not_ready == 0);
  }

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

  // Go: TestChanSendBarrier, TestChanSendSelectBarrier.
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

  // --- Go: test/chan

  // Go: chan/fifo.go.
  TEST_CASE("receivers that wait are served in the order in which they came") {
    for_each_seed(20, [] {
      for (const std::size_t n : {0u, 10u}) {
        const auto c = make_channel<int>(n);
        std::vector<vigil::fiber<int>> waiting;
        for (int i = 0; i < 10; ++i) {
          waiting.push_back(spawn([c] { return c.recv().value(); }));
          settle();
        }
        for (int i = 0; i < 10; ++i)
          c.send(i);
        for (int i = 0; i < 10; ++i)
          CHECK(waiting[static_cast<std::size_t>(i)].join() == i);
      }
    });
  }

  TEST_CASE("senders that wait are served in the order in which they came") {
    for_each_seed(20, [] {
      for (const std::size_t n : {0u, 3u}) {
        const auto c = make_channel<int>(n);
        std::vector<vigil::fiber<>> waiting;
        for (int i = 0; i < 10; ++i) {
          waiting.push_back(spawn([c, i] { c.send(i); }));
          settle();
        }
        for (int i = 0; i < 10; ++i)
          CHECK(c.recv() == i);
      }
    });
  }

  TEST_CASE("who stops waiting in the middle of the queue does not disturb the others") {
    for_each_seed(20, [](std::uint64_t seed) {
      seeded dice(seed);
      const auto c = make_channel<int>();
      std::vector<vigil::fiber<int>> waiting;
      for (int i = 0; i < 10; ++i) {
        waiting.push_back(spawn([c] { return c.recv().value(); }));
        settle();
      }
      std::vector<std::size_t> gone;
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        if (dice.below(2) == 0) gone.push_back(i);
      }
      for (const std::size_t i : gone)
        waiting[i].request_stop();
      if (dice.below(2) == 0) settle();  // or their places are still in the queue
      int next = 0;
      for (std::size_t i = 0; i < waiting.size() - gone.size(); ++i)
        c.send(next++);
      next = 0;
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        if (std::find(gone.begin(), gone.end(), i) != gone.end()) {
          CHECK_THROWS_AS(waiting[i].join(), vigil::cancelled);
        } else {
          CHECK(waiting[i].join() == next++);
        }
      }
      check_nobody_waits(c);
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

  // Go: chan/nonblock.go, for four element types.
  TEST_CASE_TEMPLATE("a try works exactly when somebody waits there or the buffer allows it",
                     T,
                     int,
                     std::string,
                     bool,
                     std::unique_ptr<int>,
                     wide) {
    for_each_seed(5, [] {
      const auto c = make_channel<T>();
      CHECK_FALSE(c.try_send(T()));
      CHECK_FALSE(c.try_recv());
      auto taker = spawn([c] { return c.recv().has_value(); });
      settle();
      CHECK(c.try_send(T()));
      CHECK_FALSE(c.try_send(T()));  // already served
      CHECK(taker.join());
      auto giver = spawn([c] { c.send(T()); });
      settle();
      CHECK(c.try_recv());
      CHECK_FALSE(c.try_recv());
      giver.join();

      const auto buffered = make_channel<T>(1);
      CHECK_FALSE(buffered.try_recv());
      CHECK(buffered.try_send(T()));
      CHECK_FALSE(buffered.try_send(T()));
      CHECK(buffered.try_recv());
      CHECK_FALSE(buffered.try_recv());
      auto late = spawn([buffered] {
        buffered.send(T());
        buffered.send(T());
      });
      settle();
      CHECK(buffered.try_recv());  // the one who waited fills the place at once
      CHECK(buffered.size() == 1);
      CHECK(buffered.try_recv());
      CHECK_FALSE(buffered.try_recv());
      late.join();
    });
  }

  // Go: chan/perm.go; at compile time.
  TEST_CASE("a sending half cannot receive and a receiving half can neither send nor close") {
    CHECK(has_gos_permissions<int>());
    CHECK(has_gos_permissions<std::string>());
    CHECK(has_gos_permissions<std::unique_ptr<int>>());
    CHECK(has_gos_permissions<void>());
    // A move-only value is not sent by copying it.
    static_assert(!can_send_copy<channel<std::unique_ptr<int>>, std::unique_ptr<int>>);
    static_assert(can_send_copy<channel<std::string>, std::string>);
    // The result of a try cannot be mistaken for a number.
    static_assert(!std::is_convertible_v<vigil::send_result, bool>);
    static_assert(!std::is_convertible_v<vigil::recv_result<int>, bool>);
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

  // Go: chan/sieve2.go, with a heap instead of a ring of pairs.
  TEST_CASE("a sieve whose primes feed themselves back gives the same primes") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      // Multiples of p, merged by a chain: merge(a, b) gives each number once.
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

  // Go: chan/zerosize.go.
  TEST_CASE("values without content are counted like any other") {
    in_virtual([] {
      for (const std::size_t n : {0u, 1u, 5u}) {
        const auto c = make_channel<nothing_in_it>(n);
        const auto v = make_channel<void>(n);
        const auto m = make_channel<std::monostate>(n);
        for (std::size_t i = 0; i < n; ++i) {
          CHECK(c.try_send({}));
          CHECK(v.try_send());
          CHECK(m.try_send(std::monostate()));
        }
        CHECK_FALSE(c.try_send({}));
        CHECK_FALSE(v.try_send());
        CHECK(v.size() == n);
        for (std::size_t i = 0; i < n; ++i) {
          CHECK(c.recv().has_value());
          CHECK(v.recv());
          CHECK(m.recv().has_value());
        }
        CHECK_FALSE(v.try_recv());
        auto f = spawn([v] { return v.recv(); });
        settle();
        v.send();
        CHECK(f.join());
        CHECK(v.recv_for(1s).is_timeout());
        if (n == 0) CHECK(v.send_for(1s).is_timeout());
        CHECK(v.recv_until(vigil::clock::now() + 1s).is_timeout());
        v.close();
        CHECK_FALSE(v.recv());
        CHECK(v.try_recv().is_closed());
        CHECK(v.try_send().is_closed());
        CHECK_THROWS_AS(v.send(), channel_closed);
      }
      const auto huge = make_channel<void>(1'000'000'000);  // needs no memory
      CHECK(huge.try_send());
      CHECK(huge.size() == 1);
    });
  }

  // Go: fixedbugs/bug147.go.
  TEST_CASE("the second send on an unbuffered channel waits for the receiver to come back") {
    in_virtual([] {
      const auto c = make_channel<int>();
      const auto start = vigil::clock::now();
      go([c] {
        while (c.recv())
          sleep_for(10ms);
      });
      c.send(1);
      CHECK(since(start) == 0ms);
      c.send(2);
      CHECK(since(start) == 10ms);
      c.send(3);
      CHECK(since(start) == 20ms);
    });
  }

  // Go: fixedbugs/bug234.go.
  TEST_CASE("a buffer is drained before its receivers hear of the close, one at a time") {
    in_virtual([] {
      const auto c = make_channel<int>(100);
      CHECK(c.try_send(1));
      CHECK(c.recv_for(0s));
      c.send(2);
      c.close();
      CHECK(c.try_recv().value() == 2);
      CHECK(c.try_recv().is_closed());
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
