// The waiters of a channel, and the order in which they are served.
#include "core/chan/chan_test.hpp"

#include <algorithm>

using namespace vigil::testing_support;

TEST_SUITE("channel") {
  // Go: chan/fifo.go.
  TEST_CASE("waiting receivers are served in the order of arrival") {
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

  // Go: chan/fifo.go.
  TEST_CASE("waiting senders are served in the order of arrival") {
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

  // Go: TestShrinkStackDuringBlockedSend, TestNoShrinkStackWhileParking,
  // TestSelectStackAdjust.
  TEST_CASE("a waiter that leaves the middle of the queue does not disturb the others") {
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
      if (dice.below(2) == 0) settle();  // otherwise their places are still in the queue
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

  // Go: fixedbugs/bug225, bug234.
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
}
