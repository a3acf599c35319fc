// Channels: which plain writes happen before which reads.
#include "core/chan/chan_test.hpp"

#include <cstddef>

using namespace vigil::testing_support;

// Plain variables on both sides: ThreadSanitizer is the judge; without it the values are
// checked. Go: race/testdata/chan_test.go.
TEST_SUITE("channel: memory order") {
  struct edge {
    virtual ~edge() = default;

    virtual void before() {}

    virtual void first() = 0;
    virtual void second() = 0;

    virtual void after() {}
  };

  // Runs between plain threads, and between fibers on several workers.
  void try_edge(edge & e, int n) {
    race(
        n,
        [&](int) { e.before(); },
        [&](int) { e.first(); },
        [&](int) { e.second(); },
        [&](int) { e.after(); });
    in_runtime({.workers = {2, 4}}, [&] {
      for (int i = 0; i < n; ++i) {
        e.before();
        auto other = spawn([&] { e.second(); });
        e.first();
        other.join();
        e.after();
      }
    });
  }

  // Go: race: ChanSync, ChanAsync, BlockedSendSync.
  TEST_CASE("a write before a send is seen after its receive") {
    for (const std::size_t n : {0u, 1u, 10u}) {
      struct sent final : edge {
        explicit sent(std::size_t n) : capacity(n) {}

        void before() override {
          c = make_channel<int>(capacity);
          plain = 0;
        }

        void first() override {
          plain = 1;
          c.send(0);
        }

        void second() override {
          REQUIRE(c.recv().has_value());
          CHECK(plain == 1);
          plain = 2;
        }

        std::size_t capacity;
        channel<int> c;
        int plain = 0;
      } e(n);

      try_edge(e, many(1000));
    }
  }

  // A write before a receive, and a send that ends because of it: the channel is full.
  struct received final : edge {
    explicit received(std::size_t n) : capacity(n) {}

    void before() override {
      c = make_channel<int>(capacity);
      for (std::size_t i = 0; i < capacity; ++i)
        c.send(0);
      plain = 0;
    }

    void first() override {
      c.send(0);
      CHECK(plain == 1);
      plain = 2;
    }

    void second() override {
      plain = 1;
      static_cast<void>(c.recv());
    }

    std::size_t capacity;
    channel<int> c;
    int plain = 0;
  };

  // Go: race: ChanSyncRev.
  TEST_CASE("a write before a receive from an unbuffered channel is seen after the send") {
    received e(0);
    try_edge(e, many(1000));
  }

  // Go: race: ChanAsyncRev, the (k+cap)-th send.
  TEST_CASE("a write before the receive that makes room is seen after the send") {
    received e(2);
    try_edge(e, many(1000));
  }

  // Go: race: AsyncCloseRecv, CloseHappensBeforeRead.
  TEST_CASE("a write before a close is seen by every receiver that hears of it") {
    for (const std::size_t n : {0u, 10u}) {
      struct closed final : edge {
        explicit closed(std::size_t n) : capacity(n) {}

        void before() override {
          c = make_channel<int>(capacity);
          plain = 0;
        }

        void first() override {
          plain = 1;
          c.close();
        }

        void second() override {
          CHECK_FALSE(c.recv().has_value());
          CHECK(plain == 1);
          plain = 2;
        }

        std::size_t capacity;
        channel<int> c;
        int plain = 0;
      } e(n);

      try_edge(e, many(1000));
    }
  }

  // Go: race: ChanSendSelect, BlockedSelectSendSync, NoRaceSelect1 to 5.
  TEST_CASE("a case of a select orders as the plain operation does") {
    struct selected final : edge {
      void before() override {
        c = make_channel<int>();
        d = make_channel<int>();
        plain = other = 0;
      }

      void first() override {
        plain = 1;
        if (vigil::select(vigil::on_send(c, 1), vigil::on_send(d, 1)) == 1) {
          CHECK(other == 1);
        } else {
          CHECK(other == 2);
        }
        other = 3;
      }

      void second() override {
        if (++turn % 2 == 0) {
          other = 1;
          vigil::select(vigil::on_recv(d), vigil::on_recv(channel<int>()));
        } else {
          other = 2;
          static_cast<void>(c.recv());
        }
        CHECK(plain == 1);
        plain = 2;
      }

      channel<int> c;
      channel<int> d;
      int turn = 0;
      int plain = 0;
      int other = 0;
    } e;

    try_edge(e, many(1000));
  }

  // Go: race: ChanMutex, SelectMutex, ChanSem.
  TEST_CASE("a channel with one place serves as a mutex, with a plain send and with a select") {
    const auto lock = make_channel<void>(1);
    int counter = 0;
    const auto add = [&](int i) {
      if (i % 2 == 0) {
        lock.send();
      } else {
        vigil::select(vigil::on_send(lock), vigil::on_recv(channel<int>()));
      }
      ++counter;
      CHECK(lock.recv());
    };
    const int n = many(3000);
    int rounds_run = 0;
    race(
        n, [](int) {}, add, add, [&](int) { ++rounds_run; });
    CHECK(counter == 2 * rounds_run);
    in_runtime({.workers = {2, 4}}, [&] {
      counter = 0;
      std::vector<vigil::fiber<>> all;
      for (int f = 0; f < 8; ++f) {
        all.push_back(spawn([&] {
          for (int i = 0; i < n / 8; ++i)
            add(i);
        }));
      }
      for (auto& f : all)
        f.join();
      CHECK(counter == n / 8 * 8);
    });
  }
}
