#include "core/time/time_test.hpp"

namespace {

using namespace vigil::testing_support;
using vigil::on_deadline;
using vigil::otherwise;

}  // namespace

TEST_SUITE("select with a time") {
  TEST_CASE("takes on_timeout at exactly its time if nothing else comes") {
    for_each_seed(10, [] {
      const auto start = vigil::clock::now();
      const auto values = vigil::make_channel<int>();
      bool called = false;
      CHECK(vigil::select(on_recv(values), on_timeout(1s, [&] {
                            CHECK(since(start) == 1s);
                            called = true;
                          })) == 1);
      CHECK(called);
      CHECK(vigil::select(on_timeout(1ns)) == 0);
      CHECK(since(start) == 1s + 1ns);
      CHECK(vigil::select(on_recv(vigil::channel<int>()), on_timeout(24h)) == 1);
      CHECK(since(start) == 24h + 1s + 1ns);
      CHECK(pending() == 0);
    });
  }

  TEST_CASE("counts on_timeout from when it begins to wait, anew each time") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto values = vigil::make_channel<int>();
      auto f = vigil::spawn([&] {
        for (int i = 0; i < 5; ++i)
          CHECK(vigil::select(on_recv(values), on_timeout(1s)) == 0);
        CHECK(vigil::select(on_recv(values), on_timeout(1s)) == 1);
        CHECK(since(start) == 5 * 900ms + 1s);
      });
      for (int i = 0; i < 5; ++i) {
        sleep_for(900ms);
        values.send(i);
      }
      f.join();
    });
  }

  TEST_CASE("shares one deadline among several selects") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto values = vigil::make_channel<int>();
      auto f = vigil::spawn([&] {
        const auto deadline = start + 10s;
        const auto last = after(10s);
        int n = 0;
        while (vigil::select(on_recv(values), on_deadline(deadline)) == 0)
          ++n;
        CHECK(since(start) == 10s);
        CHECK(last.try_recv().value() == deadline);
        return n;
      });
      for (int i = 0; i < 20; ++i) {
        sleep_for(900ms);
        if (!values.send_for(i, 1ms)) break;
      }
      CHECK(f.join() == 11);
    });
  }

  TEST_CASE("with a time that has come takes a ready case, and the time only if none is ready") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      const auto values = vigil::make_channel<int>(1);
      const auto before = vigil::stats();
      for (const nanoseconds past : {0ns, -1ns, nanoseconds::min()}) {
        values.send(1);
        CHECK(vigil::select(on_timeout(past), on_recv(values)) == 1);
        CHECK(vigil::select(on_timeout(past), on_recv(values)) == 0);
        CHECK(values.recv_for(past).is_timeout());
        values.send(2);
        CHECK(values.recv_for(past).value() == 2);
      }
      for (const instant past : {start, start - 1h, instant::min()}) {
        values.send(1);
        CHECK(vigil::select(on_deadline(past), on_recv(values)) == 1);
        CHECK(vigil::select(on_deadline(past), on_recv(values)) == 0);
        CHECK(values.recv_until(past).is_timeout());
        values.send(2);
        CHECK(values.recv_until(past).value() == 2);
      }
      CHECK(since(start) == 0s);
      CHECK(vigil::stats().switches == before.switches);
      CHECK(vigil::stats().timers_armed == before.timers_armed);
    });
  }

  TEST_CASE("with several times takes the earliest, whichever kind and place it has") {
    in_virtual([] {
      auto start = vigil::clock::now();
      CHECK(vigil::select(on_timeout(3s), on_timeout(1s), on_timeout(2s)) == 1);
      CHECK(since(start) == 1s);
      start = vigil::clock::now();
      CHECK(vigil::select(on_timeout(3s), on_deadline(start + 4s), on_deadline(start + 2s)) == 2);
      CHECK(since(start) == 2s);
      start = vigil::clock::now();
      CHECK(vigil::select(on_deadline(start + 1h), on_timeout(1s), on_timeout(0s)) == 2);
      CHECK(vigil::select(
                on_timeout(1h), on_recv(vigil::channel<int>()), on_deadline(start - 1s)) == 2);
      CHECK(since(start) == 0s);
    });
  }

  TEST_CASE("with a time beyond the clock waits for its other cases") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      CHECK(vigil::select(on_timeout(nanoseconds::max()), on_recv(after(1h))) == 1);
      CHECK(vigil::select(on_deadline(no_deadline), on_recv(after(1h))) == 1);
      CHECK(vigil::select(on_timeout(std::chrono::hours::max()), on_timeout(1h)) == 1);
      CHECK(since(start) == 3h);
    });
  }

  // Go: clock, WithDeadline(t).
  TEST_CASE("takes points of other clocks by their distance from now") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      CHECK(vigil::select(on_deadline(std::chrono::steady_clock::now() + 1h)) == 0);
      CHECK(since(start) > 59min);
      CHECK(since(start) <= 1h);
      const auto values = vigil::make_channel<int>();
      const auto middle = vigil::clock::now();
      CHECK(values.recv_until(std::chrono::system_clock::now() + 1h).is_timeout());
      CHECK(since(middle) > 59min);
      CHECK(since(middle) <= 1h);
    });
  }

  TEST_CASE("of a value and a timeout at one instant takes one, and loses no value") {
    int values_taken = 0;
    int timeouts = 0;
    for_each_seed(100, [&] {
      const auto values = vigil::make_channel<int>();
      bool sent = false;
      vigil::go([&] {
        sleep_for(1s);
        sent = static_cast<bool>(values.try_send(1));
      });
      const bool received = vigil::select(on_recv(values), on_timeout(1s)) == 0;
      sleep_for(1s);
      CHECK(received == sent);
      ++(received ? values_taken : timeouts);
    });
    CHECK(values_taken + timeouts == 100);
    CHECK(timeouts > 0);
    for_each_seed(50, [] {
      timer t(1s);
      const auto got = t.channel().recv_for(1s);
      if (!got) CHECK(t.channel().try_recv());
      CHECK_FALSE(t.stop());
    });
  }

  TEST_CASE("ends by a stop of the fiber and leaves no timer and no waiter behind") {
    in_virtual([] {
      const auto values = vigil::make_channel<int>();
      auto f =
          vigil::spawn([&] { vigil::select(on_recv(values), on_recv(after(1h)), on_timeout(2h)); });
      auto g = vigil::spawn([&] { static_cast<void>(values.recv_for(1h)); });
      sleep_for(1s);
      CHECK(pending() == 3);
      f.request_stop();
      g.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK_THROWS_AS(g.join(), vigil::cancelled);
      CHECK(pending() == 0);
      CHECK_FALSE(values.try_send(1));
    });
  }

  TEST_CASE("otherwise does not wait for a timer and does not miss one that is due") {
    for_each_seed(10, [] {
      timer t(1s);
      CHECK(vigil::select(on_recv(t.channel()), otherwise()) == 1);
      sleep_for(1s - 1ns);
      CHECK(vigil::select(on_recv(t.channel()), otherwise()) == 1);
      sleep_for(1ns);
      CHECK(vigil::select(on_recv(t.channel()), otherwise()) == 0);
      CHECK(vigil::select(on_recv(t.channel()), otherwise()) == 1);
    });
  }

  TEST_CASE("draws among ready timers and ready channels, or takes the first in order") {
    in_virtual([] {
      const auto values = vigil::make_channel<int>(1);
      int timers_taken = 0;
      for (int i = 0; i < 1000; ++i) {
        timer t(0s);
        static_cast<void>(values.try_send(1));
        timers_taken += vigil::select(on_recv(values), on_recv(t.channel())) == 1 ? 1 : 0;
      }
      CHECK(timers_taken > 400);  // of 1000, by a fair draw: 6 sigma
      CHECK(timers_taken < 600);
      for (int i = 0; i < 100; ++i) {
        timer t(0s);
        static_cast<void>(values.try_send(1));
        CHECK(vigil::select_ordered(on_recv(t.channel()), on_recv(values)) == 0);
      }
    });
  }

  TEST_CASE("a list made at run time takes timers and times") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      int received = 0;
      vigil::case_list cases;
      for (int i = 1; i <= 10; ++i)
        cases.add(on_recv(after(i * 1s), [&] { ++received; }));
      cases.add(on_timeout(5s));
      for (int i = 1; i <= 10; ++i)
        CHECK(vigil::select(cases) == static_cast<std::size_t>(i - 1));
      CHECK(received == 10);
      CHECK(since(start) == 10s);
      CHECK(vigil::select(cases) == 10);
      CHECK(since(start) == 15s);
    });
  }
}

TEST_SUITE("receive with a time") {
  TEST_CASE("gives up at exactly its deadline, and reports a timeout") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto values = vigil::make_channel<int>();
      const auto none = values.recv_for(1s);
      CHECK(none.is_timeout());
      CHECK_FALSE(none.is_closed());
      CHECK(since(start) == 1s);
      CHECK(values.recv_until(start + 3s).is_timeout());
      CHECK(since(start) == 3s);
      CHECK(vigil::channel<int>().recv_for(1s).is_timeout());
      CHECK(after(1h).recv_for(1ns).is_timeout());
      CHECK(since(start) == 4s + 1ns);
      values.close();
      CHECK(values.recv_for(1s).is_closed());
      CHECK(since(start) == 4s + 1ns);
    });
  }

  TEST_CASE("gives the value that comes in time, at its time") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto values = vigil::make_channel<int>();
      vigil::go([&] {
        sleep_for(1s);
        values.send(7);
      });
      CHECK(values.recv_for(2s).value() == 7);
      CHECK(since(start) == 1s);
      CHECK(pending() == 0);
      CHECK(after(1s).recv_for(2s).value() == start + 2s);
      CHECK(after(1s).recv_for(nanoseconds::max()).value() == start + 3s);
      CHECK(after(1s).recv_until(no_deadline).value() == start + 4s);
    });
  }
}
