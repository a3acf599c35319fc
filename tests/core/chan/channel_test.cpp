// Channels: what Go's chan_test.go checks of one channel, its buffer and its close.
#include "core/chan/chan_test.hpp"

#include <array>
#include <optional>
#include <set>

using namespace vigil::testing_support;

namespace {

constexpr std::size_t most_slots = 20;  // capacities 0 … 20 are tried

struct alignas(32) wide_value {
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

  // Go: TestChan (a).
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

  // Go: TestChan (b).
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

  // Go: TestChan (c); closedchan.go: receives, plain and in selects.
  TEST_CASE("a closed one yields its buffered values in order, then nothing for ever") {
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

  // Go: TestChan (d).
  TEST_CASE("close ends every receiver's wait without a value") {
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

  TEST_CASE("a scoped_close closes however its scope is left, unless it is closed already") {
    in_virtual([] {
      const auto returned = make_channel<int>();
      const auto thrown = make_channel<void>();
      const auto closed = make_channel<int>(1);
      const auto stopped = make_channel<int>();
      go([returned] {
        const vigil::scoped_close closes(returned);
        returned.send(7);
      });
      CHECK(returned.recv() == 7);
      CHECK_FALSE(returned.recv().has_value());
      try {
        const vigil::scoped_close closes(thrown);
        throw 1;
      } catch (int) {
      }
      CHECK(thrown.try_recv().is_closed());
      {
        const vigil::scoped_close closes(sender<int>{closed});
        closed.send(1);
        closed.close();
      }
      CHECK(closed.recv() == 1);
      CHECK_FALSE(closed.recv().has_value());
      auto f = spawn([closes = vigil::scoped_close(stopped)] { vigil::sleep_for(1h); });
      settle();
      CHECK_FALSE(stopped.try_recv().is_closed());
      f.request_stop();
      CHECK_FALSE(stopped.recv().has_value());
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK_THROWS_AS(static_cast<void>(vigil::scoped_close(channel<int>())), std::logic_error);
    });
  }

  // Go: TestChan (e).
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

  // Go: TestChan (f).
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

  // Go: TestChan (g); chancap.go, makechan.go.
  TEST_CASE("size counts the buffered values and capacity never changes") {
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
        // A waiting sender is not in the buffer.
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

  // For four element types.
  // Go: chan/nonblock.go; fixedbugs/bug225, bug234.
  TEST_CASE_TEMPLATE("a try works exactly when somebody waits there or the buffer allows it",
                     T,
                     int,
                     std::string,
                     bool,
                     std::unique_ptr<int>,
                     wide_value) {
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
      CHECK(buffered.try_recv());  // the waiting sender fills the place at once
      CHECK(buffered.size() == 1);
      CHECK(buffered.try_recv());
      CHECK_FALSE(buffered.try_recv());
      late.join();
    });
  }
}
