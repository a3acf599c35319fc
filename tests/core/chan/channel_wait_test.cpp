// Channels: waits that end by a deadline, a close, a stop or the shutdown, and what these
// leave behind.
#include "core/chan/chan_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("channel") {
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

  TEST_CASE("a passed deadline still takes a value that is there and waits for nothing else") {
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

  // Go: TestShrinkStackDuringBlockedSend, TestNoShrinkStackWhileParking,
  // TestSelectStackAdjust.
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

  // Go: TestShrinkStackDuringBlockedSend, TestNoShrinkStackWhileParking,
  // TestSelectStackAdjust.
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

  // Go: race: len and cap do not synchronise; close racing with send is a bug.
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

  TEST_CASE("while stopping a call that can complete at once does, so a channel can be drained") {
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
        // Both at the same instant: whichever comes first, the two agree.
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
}
