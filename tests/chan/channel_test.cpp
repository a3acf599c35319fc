// Channels: what Go's chan_test.go and test/chan check, and what is ours.
#include "chan/chan_test.hpp"
#include "support/child.hpp"

#include <vigil/channel.hpp>
#include <vigil/select.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
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

// --- who may do what

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

// Move-only, and says what was done with it.
struct traced {
  struct counts {
    int alive = 0;
    int moves = 0;
  };

  traced(counts& c, int v) : of(&c), value(v) { ++of->alive; }

  traced(traced&& other) noexcept : of(other.of), value(std::exchange(other.value, -1)) {
    ++of->alive;
    ++of->moves;
  }

  traced& operator=(traced&& other) noexcept {
    value = std::exchange(other.value, -1);
    ++of->moves;
    return *this;
  }

  ~traced() { --of->alive; }

  counts* of;
  int value;  // -1: moved from
};

struct nothing_in_it {};

struct alignas(32) wide {
  std::array<std::uint64_t, 24> words{};
};

// Refers to whatever is sent, in the manner of an interface value.
struct shape {
  virtual ~shape() = default;
  virtual int corners() const = 0;
};

struct square final : shape {
  int corners() const override { return 4; }
};

std::size_t sizes_sum(const std::vector<int>& v) {
  std::size_t n = 0;
  for (const int x : v)
    n += static_cast<std::size_t>(x);
  return n;
}

// n senders, each with `each` values in order, m receivers, by every kind of
// operation, on fibers of two runtimes and on plain threads in turn: each value
// arrives once, and those of one sender in order at each receiver.
class traffic {
 public:
  traffic(std::size_t capacity, int senders, int receivers, int each)
      : ch_(make_channel<std::unique_ptr<int>>(capacity)),
        senders_(senders),
        receivers_(receivers),
        each_(each),
        seen_(static_cast<std::size_t>(senders * each)) {}

  void run() {
    std::vector<std::thread> threads;
    const auto on_a_thread = [&](auto f) { threads.emplace_back(f); };
    std::atomic<int> left{senders_};
    const auto send = [&](int s) {
      send_all(s);
      if (left.fetch_sub(1) == 1) ch_.close();
    };
    // The second runtime: half of the fibers.
    on_a_thread([&] {
      vigil::options o;
      o.workers = 2;
      o.deadlock = vigil::on_deadlock::warn;
      vigil::run(o, [&] {
        std::vector<vigil::fiber<>> fibers;
        for (int s = 1; s < senders_; s += 3)
          fibers.push_back(spawn([&send, s] { send(s); }));
        for (int r = 1; r < receivers_; r += 3)
          fibers.push_back(spawn([this, r] { recv_all(r); }));
        for (auto& f : fibers)
          f.join();
      });
    });
    for (int s = 2; s < senders_; s += 3)
      on_a_thread([&send, s] { send(s); });
    for (int r = 2; r < receivers_; r += 3)
      on_a_thread([this, r] { recv_all(r); });
    {
      std::vector<vigil::fiber<>> fibers;
      for (int s = 0; s < senders_; s += 3)
        fibers.push_back(spawn([&send, s] { send(s); }));
      for (int r = 0; r < receivers_; r += 3)
        fibers.push_back(spawn([this, r] { recv_all(r); }));
      for (auto& f : fibers)
        f.join();
    }
    for (auto& t : threads)
      t.join();
    int missing = 0;
    for (const auto& n : seen_)
      missing += n.load() == 1 ? 0 : 1;
    CHECK(missing == 0);
    CHECK(disorder_.load() == 0);
    CHECK(lost_in_hand_.load() == 0);
    CHECK(ch_.size() == 0);
  }

 private:
  void send_all(int s) {
    for (int i = 0; i < each_; ++i) {
      auto value = std::make_unique<int>(s * each_ + i);
      bool sent = false;
      for (int how = (s + i) % 4; !sent; how = (how + 1) % 4) {
        switch (how) {
          case 0:
            ch_.send(std::move(value));
            sent = true;
            break;
          case 1:
            sent = static_cast<bool>(ch_.try_send(std::move(value)));
            break;
          case 2:
            sent = static_cast<bool>(ch_.send_for(std::move(value), 2us));
            break;
          default:
            sent =
                vigil::select(vigil::on_timeout(5us), vigil::on_send(ch_, std::move(value))) == 1;
        }
        if (sent != (value == nullptr)) ++lost_in_hand_;
        if (value == nullptr) sent = true;
      }
    }
  }

  void recv_all(int r) {
    std::vector<int> last(static_cast<std::size_t>(senders_), -1);
    const receiver<std::unique_ptr<int>> from = ch_;
    for (int round = r;; ++round) {
      std::unique_ptr<int> got;
      bool over = false;
      switch (round % 4) {
        case 0: {
          auto v = from.recv();
          v ? void(got = std::move(*v)) : void(over = true);
          break;
        }
        case 1: {
          auto v = from.try_recv();
          v ? void(got = std::move(*v)) : void(over = v.is_closed());
          break;
        }
        case 2: {
          auto v = from.recv_for(2us);
          v ? void(got = std::move(*v)) : void(over = v.is_closed());
          break;
        }
        default:
          vigil::select(vigil::on_recv(from,
                                       [&](std::optional<std::unique_ptr<int>> v) {
                                         v ? void(got = std::move(*v)) : void(over = true);
                                       }),
                        vigil::on_timeout(5us));
      }
      if (over) return;
      if (got == nullptr) continue;
      seen_[static_cast<std::size_t>(*got)].fetch_add(1);
      int& before = last[static_cast<std::size_t>(*got / each_)];
      if (*got % each_ <= before) ++disorder_;
      before = *got % each_;
    }
  }

  const channel<std::unique_ptr<int>> ch_;
  const int senders_;
  const int receivers_;
  const int each_;
  std::vector<std::atomic<int>> seen_;
  std::atomic<int> disorder_{0};
  std::atomic<int> lost_in_hand_{0};
};

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

  // --- the ends of a wait

  TEST_CASE("a receive with a deadline ends exactly then, and its channel forgets it") {
    in_virtual([] {
      const auto c = make_channel<int>();
      const auto start = vigil::clock::now();
      CHECK(c.recv_for(3s).is_timeout());
      CHECK(since(start) == 3s);
      check_nobody_waits(c);
      CHECK(c.recv_until(start + 5s).is_timeout());
      CHECK(since(start) == 5s);
      CHECK(c.recv_until(start + 4s).is_timeout());
      CHECK(since(start) == 5s);
      check_nobody_waits(c);
      CHECK_FALSE(c.try_send(1));  // nobody there
      go([c] {
        sleep_for(1s);
        c.send(7);
      });
      auto got = c.recv_for(2s);
      CHECK(got.value() == 7);
      CHECK(got.status() == channel_status::ok);
      CHECK(since(start) == 6s);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("a send with a deadline ends exactly then, and its channel forgets it") {
    in_virtual([] {
      for (const std::size_t n : {0u, 1u}) {
        const auto c = make_channel<int>(n);
        for (std::size_t i = 0; i < n; ++i)
          c.send(1);
        const auto start = vigil::clock::now();
        CHECK(c.send_for(2, 3s).is_timeout());
        CHECK(since(start) == 3s);
        CHECK(c.send_until(2, start + 5s).is_timeout());
        CHECK(since(start) == 5s);
        for (std::size_t i = 0; i < n; ++i)
          CHECK(c.recv() == 1);
        check_nobody_waits(c);
        for (std::size_t i = 0; i < n; ++i)
          c.send(1);
        go([c] {
          sleep_for(1s);
          static_cast<void>(c.recv());
        });
        CHECK(c.send_for(2, 2s));
        CHECK(since(start) == 6s);
        CHECK(vigil::stats().timers_pending == 0);
      }
    });
  }

  TEST_CASE("a deadline that has passed still takes what is there and waits for nothing else") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto c = make_channel<int>(1);
      for (const auto d : {0ns, -1ns, std::chrono::nanoseconds::min()}) {
        CHECK(c.recv_for(d).is_timeout());
        CHECK(c.send_for(5, d));
        CHECK(c.send_for(6, d).is_timeout());
        CHECK(c.recv_for(d).value() == 5);
      }
      for (const auto t : {start, start - 1h, vigil::clock::time_point::min()}) {
        CHECK(c.recv_until(t).is_timeout());
        CHECK(c.send_until(5, t));
        CHECK(c.send_until(6, t).is_timeout());
        CHECK(c.recv_until(t).value() == 5);
      }
      CHECK(since(start) == 0ns);
      check_nobody_waits(c);
    });
  }

  TEST_CASE("a timeout beyond the range of the clock never comes") {
    in_virtual([] {
      const auto c = make_channel<int>();
      CHECK(waits([&] { static_cast<void>(c.recv_for(std::chrono::hours::max())); }));
      CHECK(waits([&] { static_cast<void>(c.send_for(1, std::chrono::nanoseconds::max())); }));
      auto f = spawn([&] { return c.recv_until(vigil::clock::time_point::max()).value(); });
      sleep_for(24h * 365 * 100);
      CHECK_FALSE(f.join_for(0s));
      c.send(9);
      CHECK(f.join() == 9);
    });
  }

  TEST_CASE("points of other clocks serve as deadlines") {
    in_virtual([] {
      const auto c = make_channel<int>();
      const auto start = vigil::clock::now();
      CHECK(c.recv_until(std::chrono::steady_clock::now() + 1h).is_timeout());
      CHECK(since(start) > 59min);
      CHECK(since(start) <= 1h);
      const auto middle = vigil::clock::now();
      CHECK(c.send_until(1, std::chrono::system_clock::now() + 1h).is_timeout());
      CHECK(since(middle) > 59min);
      CHECK(since(middle) <= 1h);
    });
  }

  TEST_CASE("a real wait never gives up early, on a fiber or a thread") {
    const auto tries = [] {
      const auto c = make_channel<int>();
      seeded dice(3);
      for (int i = 0; i < rounds(200); ++i) {
        const std::chrono::nanoseconds d(1 + dice.below(100'000));
        auto start = vigil::clock::now();
        REQUIRE(c.recv_for(d).is_timeout());
        REQUIRE(since(start) >= d);
        start = vigil::clock::now();
        REQUIRE(c.send_for(1, d).is_timeout());
        REQUIRE(since(start) >= d);
        const auto deadline = vigil::clock::now() + d;
        REQUIRE(c.recv_until(deadline).is_timeout());
        REQUIRE(vigil::clock::now() >= deadline);
      }
      check_nobody_waits(c);
    };
    tries();
    in_runtime({.workers = {1, 2}}, tries);
  }

  TEST_CASE("closed, empty and timed out are three answers") {
    in_virtual([] {
      const auto c = make_channel<int>();
      const auto empty = c.try_recv();
      CHECK_FALSE(empty);
      CHECK(empty.status() == channel_status::not_ready);
      CHECK_FALSE(empty.is_closed());
      CHECK_FALSE(empty.is_timeout());
      auto late = c.recv_for(1s);
      CHECK(late.status() == channel_status::timeout);
      CHECK_FALSE(late.is_closed());
      CHECK_THROWS_AS(late.value(), std::bad_optional_access);
      CHECK(c.try_send(1).status() == channel_status::not_ready);
      CHECK(c.send_for(1, 1s).status() == channel_status::timeout);
      c.close();
      CHECK(c.try_recv().status() == channel_status::closed);
      CHECK(c.recv_for(1s).status() == channel_status::closed);
      CHECK(c.try_send(1).status() == channel_status::closed);
      CHECK(c.send_for(1, 1s).status() == channel_status::closed);
      CHECK_FALSE(c.try_send(1));
      CHECK_FALSE(c.recv_for(1s).is_timeout());
    });
  }

  TEST_CASE("a send that times out leaves the value in the caller's hand") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>();
      auto value = std::make_unique<int>(5);
      const int* const at = value.get();
      CHECK(c.try_send(std::move(value)).status() == channel_status::not_ready);
      CHECK(c.send_for(std::move(value), 1s).is_timeout());
      CHECK(c.send_until(std::move(value), vigil::clock::now()).is_timeout());
      REQUIRE(value.get() == at);
      auto f = spawn([c] { return c.recv().value(); });
      CHECK(c.send_for(std::move(value), 1s));
      CHECK(value == nullptr);
      CHECK(f.join().get() == at);
    });
  }

  TEST_CASE("a send that finds the channel closed leaves the value in the caller's hand") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>(3);
      c.close();
      auto value = std::make_unique<int>(5);
      CHECK_THROWS_AS(c.send(std::move(value)), channel_closed);
      CHECK(c.try_send(std::move(value)).is_closed());
      CHECK(c.send_for(std::move(value), 1s).is_closed());
      CHECK(c.send_until(std::move(value), vigil::clock::now() + 1s).is_closed());
      REQUIRE(value != nullptr);
      CHECK(*value == 5);
      CHECK(c.size() == 0);
    });
  }

  TEST_CASE("a send that is closed while it waits leaves the value in the caller's hand") {
    for_each_seed(10, [] {
      const auto c = make_channel<std::unique_ptr<int>>();
      bool thrown = false;
      auto f = spawn([&] {
        auto value = std::make_unique<int>(5);
        try {
          c.send(std::move(value));
        } catch (const channel_closed& e) {
          thrown = std::string(e.what()).find("not sent") != std::string::npos;
        }
        REQUIRE(value != nullptr);
        return *value;
      });
      auto g = spawn([&] {
        auto value = std::make_unique<int>(6);
        CHECK(c.send_for(std::move(value), 1h).is_closed());
        REQUIRE(value != nullptr);
        return *value;
      });
      settle();
      const auto start = vigil::clock::now();
      c.close();
      CHECK(f.join() == 5);
      CHECK(g.join() == 6);
      CHECK(thrown);
      CHECK(since(start) == 0s);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE(
      "a send that is stopped leaves the value in the caller's hand, and nobody in the queue") {
    for_each_seed(10, [] {
      const auto c = make_channel<std::unique_ptr<int>>();
      int kept = 0;
      const auto try_it = [&](auto send) {
        auto value = std::make_unique<int>(5);
        try {
          send(std::move(value));
        } catch (const vigil::stopped&) {
          REQUIRE(value != nullptr);
          kept += *value;
          wipe_stack_below();
          throw;
        }
      };
      auto f = spawn([&] { try_it([&](std::unique_ptr<int>&& v) { c.send(std::move(v)); }); });
      auto g = spawn([&] {
        try_it([&](std::unique_ptr<int>&& v) { static_cast<void>(c.send_for(std::move(v), 1h)); });
      });
      settle();
      f.request_stop();
      g.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK_THROWS_AS(g.join(), vigil::cancelled);
      CHECK(kept == 10);
      check_nobody_waits(c);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("a receive that is stopped leaves nobody in the queue") {
    for_each_seed(10, [] {
      const auto c = make_channel<int>();
      for (const bool timed : {false, true}) {
        auto f = spawn([&] {
          if (timed) {
            static_cast<void>(c.recv_for(1h));
          } else {
            static_cast<void>(c.recv());
          }
        });
        settle();
        f.request_stop();
        CHECK_THROWS_AS(f.join(), vigil::cancelled);
        check_nobody_waits(c);
        CHECK_FALSE(c.try_send(1));
      }
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE(
      "a stop and a value at the same instant: the value is received or stays with the sender") {
    for_each_seed(200, [](std::uint64_t seed) {
      const auto c = make_channel<std::unique_ptr<int>>();
      bool got = false;
      auto f = spawn([&] { got = c.recv().has_value(); });
      settle();
      auto value = std::make_unique<int>(1);
      bool sent = false;
      if (seed % 2 == 0) {
        f.request_stop();
        sent = static_cast<bool>(c.try_send(std::move(value)));
        CHECK_FALSE(sent);  // the stop was first
      } else {
        sent = static_cast<bool>(c.try_send(std::move(value)));
        f.request_stop();
        CHECK(sent);
      }
      if (sent) {
        f.join();
      } else {
        CHECK_THROWS_AS(f.join(), vigil::cancelled);
      }
      CHECK(got == sent);
      CHECK((value == nullptr) == sent);
    });
  }

  TEST_CASE("value, timeout, stop and close race and each value ends in exactly one hand") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      for (int round = 0; round < many(2000); ++round) {
        const auto c = make_channel<std::unique_ptr<int>>(static_cast<std::size_t>(round % 2));
        std::atomic<int> arrived{0};
        std::atomic<int> kept{0};
        std::vector<vigil::fiber<>> all;
        for (int i = 0; i < 3; ++i) {
          all.push_back(spawn([&, i] {
            auto value = std::make_unique<int>(i);
            try {
              static_cast<void>(c.send_for(std::move(value), std::chrono::microseconds(i * 7)));
            } catch (const vigil::stopped&) {
            }
            if (value != nullptr) ++kept;
          }));
          all.push_back(spawn([&, i] {
            try {
              if (c.recv_for(std::chrono::microseconds(i * 5))) ++arrived;
            } catch (const vigil::stopped&) {
            }
          }));
        }
        all[static_cast<std::size_t>(round % 6)].request_stop();
        all[static_cast<std::size_t>(round % 5)].request_stop();
        if (round % 3 == 0) c.close();
        for (auto& f : all)
          f.join();
        const int buffered = static_cast<int>(c.size());
        REQUIRE(arrived + kept + buffered == 3);
      }
    });
  }

  TEST_CASE("while stopping what can be done at once is done, so that it can be drained") {
    in_virtual([] {
      const auto full = make_channel<int>(3);
      const auto out = make_channel<int>(10);
      for (int i = 0; i < 3; ++i)
        full.send(i);
      auto f = spawn([&] {
        try {
          sleep_for(1h);
        } catch (const vigil::stopped&) {
        }
        int sum = 0;
        while (full.size() != 0)
          sum += full.recv().value();  // no wait
        out.send(sum);
        CHECK(full.recv_for(0s).is_timeout());
        CHECK_THROWS_AS(full.recv(), vigil::stopped);
        CHECK_THROWS_AS(static_cast<void>(full.recv_for(1s)), vigil::stopped);
        for (int i = 0; i < 3; ++i)
          full.send(i);
        CHECK_THROWS_AS(full.send(3), vigil::stopped);
        CHECK_THROWS_AS(static_cast<void>(full.send_for(3, 1s)), vigil::stopped);
        CHECK_FALSE(full.try_send(3));
        full.close();
        CHECK(full.recv() == 0);
        {
          const vigil::this_fiber::shield shield;
          CHECK(make_channel<int>().recv_for(1ms).is_timeout());
        }
        CHECK_THROWS_AS(channel<int>().recv(), vigil::stopped);
      });
      settle();
      f.request_stop();
      f.join();
      CHECK(out.recv() == 3);
    });
  }

  TEST_CASE("a value that is handed over when the deadline comes arrives once or not at all") {
    in_virtual([] {
      for (int seed = 0; seed < 50; ++seed) {
        const auto c = make_channel<std::unique_ptr<int>>();
        auto value = std::make_unique<int>(1);
        bool got = false;
        auto f = spawn([&] { got = static_cast<bool>(c.recv_for(1s)); });
        auto g = spawn([&] { static_cast<void>(c.send_for(std::move(value), 1s)); });
        auto h = spawn([&, deadline = vigil::clock::now() + 1s] {
          const auto own = make_channel<int>();
          CHECK(own.recv_until(deadline).is_timeout());
        });
        f.join();
        g.join();
        h.join();
        CHECK(got);
        CHECK(value == nullptr);
        // Both at the same instant: whoever is first, the two agree.
        value = std::make_unique<int>(2);
        got = false;
        auto late = spawn([&] { got = static_cast<bool>(c.recv_for(1s)); });
        auto sender = spawn([&] {
          sleep_for(1s);
          static_cast<void>(c.try_send(std::move(value)));
        });
        late.join();
        sender.join();
        CHECK(got == (value == nullptr));
      }
    });
  }

  // --- values

  TEST_CASE("a value is moved straight from hand to hand and destroyed as often as it was made") {
    in_virtual([] {
      traced::counts n;
      {
        const auto c = make_channel<traced>();
        auto f = spawn([&] {
          auto got = c.recv();
          return got->value;
        });
        settle();
        traced value(n, 7);
        n.moves = 0;
        c.send(std::move(value));
        CHECK(value.value == -1);
        CHECK(n.moves == 1);  // into the receiver's own room
        CHECK(f.join() == 7);
      }
      CHECK(n.alive == 0);
      {
        const auto c = make_channel<traced>(2);
        c.send(traced(n, 1));
        c.send(traced(n, 2));
        CHECK(n.alive == 2);
        auto f = spawn([&] { c.send(traced(n, 3)); });
        settle();
        CHECK(n.alive == 3);
        CHECK(c.recv()->value == 1);
        f.join();
        CHECK(c.recv()->value == 2);
        auto last = c.recv();
        CHECK(last->value == 3);
        CHECK(n.alive == 1);
      }
      CHECK(n.alive == 0);
    });
  }

  TEST_CASE("what is left in the buffer dies with the last handle, whichever kind that is") {
    in_virtual([] {
      traced::counts n;
      auto c = make_channel<traced>(3);
      for (int round = 0; round < 2; ++round) {  // so that the ring has turned
        for (int i = 0; i < 3; ++i)
          c.send(traced(n, i));
        for (int i = 0; i < 2 - round; ++i)
          static_cast<void>(c.recv());
        if (round == 0) static_cast<void>(c.recv());
      }
      CHECK(n.alive == 2);
      receiver<traced> out = c;
      sender<traced> in = c;
      c = {};
      CHECK(n.alive == 2);
      out = {};
      CHECK(n.alive == 2);
      in = {};
      CHECK(n.alive == 0);
    });
  }

  TEST_CASE("values keep their alignment and their content at any size") {
    in_virtual([] {
      const auto c = make_channel<wide>(3);
      for (std::uint64_t i = 0; i < 3; ++i) {
        wide w;
        w.words.fill(i);
        c.send(w);
      }
      for (std::uint64_t i = 0; i < 3; ++i) {
        const auto got = c.recv();
        CHECK(reinterpret_cast<std::uintptr_t>(&*got) % alignof(wide) == 0);
        CHECK(got->words.front() == i);
        CHECK(got->words.back() == i);
      }
    });
  }

  // Go: TestChanSendInterface.
  TEST_CASE("polymorphic values go through as they are") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<shape>>(1);
      c.send(std::make_unique<square>());
      CHECK((*c.recv())->corners() == 4);
      const auto shared = make_channel<std::shared_ptr<const shape>>(2);
      const auto one = std::make_shared<square>();
      shared.send(one);
      CHECK(shared.try_send(one));
      CHECK(one.use_count() == 3);
      static_cast<void>(shared.recv());
      CHECK(one.use_count() == 2);
    });
  }

  TEST_CASE("an lvalue is copied and stays as it was") {
    in_virtual([] {
      const auto c = make_channel<std::string>(4);
      std::string text = "a text that is too long for the string itself to hold";
      const std::string same = text;
      c.send(text);
      CHECK(c.try_send(text));
      CHECK(c.send_for(text, 1s));
      CHECK(c.send_until(same, vigil::clock::now()));
      CHECK(text == same);
      for (int i = 0; i < 4; ++i)
        CHECK(c.recv() == same);
    });
  }

  // --- handles

  TEST_CASE("copies name the same channel and a moved-from handle names none") {
    in_virtual([] {
      auto a = make_channel<int>(1);
      const auto b = a;
      CHECK(a == b);
      CHECK_FALSE(a == make_channel<int>(1));
      a.send(1);
      CHECK(b.recv() == 1);
      const auto moved = std::move(a);
      CHECK(moved == b);
      CHECK_FALSE(a);  // NOLINT(bugprone-use-after-move)
      CHECK(moved);
      const receiver<int> out = b;
      CHECK(out == receiver<int>(moved));
      CHECK(channel<int>() == channel<int>());
      a = b;
      CHECK(a == b);
    });
  }

  TEST_CASE("it lives on while somebody is parked on it, though every handle is gone") {
    in_virtual([] {
      auto c = make_channel<int>();
      auto f = spawn([&c] { static_cast<void>(c.recv()); });
      auto g = spawn([&c] { return c.recv_for(1h).is_timeout(); });
      auto h = spawn([&c] { return vigil::select(vigil::on_recv(c), vigil::on_timeout(1h)); });
      settle();
      c = {};
      // Whatever takes the memory now is not what they wait on.
      const auto others = std::vector<channel<int>>(50, make_channel<int>());
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(g.join());
      CHECK(h.join() == 1);
    });
  }

  // Go: chan/select3.go, the plain forms.
  TEST_CASE("a nil one makes everybody wait for ever and refuses every try") {
    in_virtual([] {
      const channel<int> nil;
      const auto start = vigil::clock::now();
      CHECK_FALSE(nil);
      CHECK(nil.size() == 0);
      CHECK(nil.capacity() == 0);
      CHECK(waits([&] { nil.send(1); }));
      CHECK(waits([&] { static_cast<void>(nil.recv()); }));
      CHECK(waits([&] {
        for (const int v : nil)
          CHECK(v != v);
      }));
      CHECK(nil.try_send(1).status() == channel_status::not_ready);
      CHECK(nil.try_recv().status() == channel_status::not_ready);
      CHECK(since(start) == 0s);
      CHECK(nil.send_for(1, 1s).is_timeout());
      CHECK(since(start) == 1s);
      CHECK(nil.recv_until(start + 2s).is_timeout());
      CHECK(since(start) == 2s);
      CHECK(nil.recv_for(0s).is_timeout());
      CHECK(receiver<int>().try_recv().status() == channel_status::not_ready);
      CHECK(sender<int>().try_send(1).status() == channel_status::not_ready);
      CHECK(channel<void>().recv_for(1s).is_timeout());
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("a range over it ends with the close and takes each value by move") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>(2);
      go([c] {
        for (int i = 0; i < 5; ++i)
          c.send(std::make_unique<int>(i));
        c.close();
      });
      std::vector<int> got;
      for (auto& p : c) {
        const std::unique_ptr<int> mine = std::move(p);
        got.push_back(*mine);
      }
      CHECK(got == std::vector{0, 1, 2, 3, 4});
      // Leaving the loop early takes no value more.
      const auto d = make_channel<int>(3);
      for (int i = 0; i < 3; ++i)
        d.send(i);
      for (const int v : receiver<int>(d)) {
        if (v == 1) break;
      }
      CHECK(d.recv() == 2);
    });
  }

  // --- who may use it

  TEST_CASE("plain threads of no runtime use it as fibers do") {
    const auto c = make_channel<int>();
    const auto start = vigil::clock::now();
    CHECK(c.recv_for(1ms).is_timeout());
    CHECK(since(start) >= 1ms);
    CHECK_FALSE(c.try_send(1));
    std::thread other([c] {
      for (int i = 0; i < 1000; ++i)
        c.send(i);
      c.close();
    });
    int next = 0;
    for (const int v : c)
      CHECK(v == next++);
    CHECK(next == 1000);
    other.join();
    // A wait that a close ends, in both directions.
    const auto d = make_channel<int>();
    std::thread waiting([d] { CHECK_FALSE(d.recv().has_value()); });
    const auto e = make_channel<int>();
    std::thread sending([e] { CHECK_THROWS_AS(e.send(1), channel_closed); });
    // It holds however far the two have come.
    d.close();
    e.close();
    waiting.join();
    sending.join();
  }

  TEST_CASE("fibers of two runtimes and plain threads, in any mix, lose and double no value") {
    in_runtime({.workers = {1, 2}}, [] {
      for (const std::size_t n : {0u, 1u, 8u}) {
        traffic(n, 5, 4, many(400)).run();
        traffic(n, 3, 1, many(400)).run();
        traffic(n, 1, 6, many(400)).run();
      }
    });
  }

  TEST_CASE("a fiber that waits hears of a plain thread although its workers sleep") {
    vigil::options o;
    o.workers = 2;
    o.deadlock = vigil::on_deadlock::warn;
    in_runtime({.workers = {1, 2}, .settings = o}, [](vigil::runtime& rt) {
      const auto there = make_channel<int>();
      const auto back = make_channel<int>();
      const auto guard = rt.make_work_guard();
      std::thread outside([=] {
        for (const int v : there)
          back.send(v + 1);
        back.close();
      });
      for (int i = 0; i < many(1000); ++i) {
        there.send(i);
        REQUIRE(back.recv() == i + 1);
      }
      there.close();
      CHECK(back.recv() == std::nullopt);
      outside.join();
    });
  }

  TEST_CASE("a fiber that waits for what nobody can send is a deadlock, and the dump says why") {
    CHECK_THROWS_AS(vigil::testing::run_virtual([] {
                      const auto c = make_channel<int>();
                      go([c] { c.send(1); });
                      static_cast<void>(c.recv());
                      static_cast<void>(c.recv());
                    }),
                    vigil::deadlock);
    const child_result r = run_child("child: waits on channels for ever");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK(r.says("vigil: deadlock"));
    CHECK(r.says("parked: channel receive"));
    CHECK(r.says("parked: channel send"));
    CHECK(r.says("parked: channel receive (nil channel)"));
    CHECK(r.says("parked: channel send (nil channel)"));
    CHECK(r.says("parked: select (no cases)"));
    CHECK(r.says("channel_test.cpp:"));
  }

  TEST_CASE("child: waits on channels for ever" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    o.deadlock = vigil::on_deadlock::fatal;
    CHECK_THROWS_AS(vigil::run(o,
                               [] {
                                 const auto c = make_channel<int>();
                                 const auto d = make_channel<int>();
                                 go([c] { static_cast<void>(c.recv()); });
                                 go([d] { d.send(1); });
                                 go([] { static_cast<void>(channel<int>().recv()); });
                                 go([] { channel<int>().send(1); });
                                 vigil::select();
                               }),
                    vigil::deadlock);
  }

  TEST_CASE("twenty thousand receivers wait on one channel and each is served") {
    in_virtual([] {
      const auto c = make_channel<int>();
      const int n = rounds(20'000);
      std::int64_t sum = 0;
      for (int i = 0; i < n; ++i)
        go([c, &sum] { sum += c.recv().value(); });
      settle();
      for (int i = 0; i < n; ++i)
        c.send(i);
      settle();
      CHECK(sum == static_cast<std::int64_t>(n) * (n - 1) / 2);
    });
  }
}
