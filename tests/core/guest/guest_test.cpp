// A runtime inside a host's loop; here the host is the test, which waits for the
// descriptor by poll(2).
#include "core/guest/host_loop.hpp"

#include <vigil/guest.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <poll.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::clock;
using vigil::guest_runtime;
using vigil::wrong_place;

namespace {

vigil::options with_fatal_deadlocks() {
  vigil::options o;
  o.deadlock = vigil::on_deadlock::fatal;
  return o;
}

}  // namespace

TEST_SUITE("guest") {
  TEST_CASE("the main fiber begins with the first poll, and the run ends with it") {
    guest_runtime g;
    CHECK_FALSE(g.poll());
    CHECK_FALSE(is_readable(g));
    bool ran = false;
    g.start([&] { ran = true; });
    CHECK_FALSE(ran);
    CHECK(is_readable(g));
    CHECK_FALSE(poll_all(g));
    CHECK(ran);
    CHECK_FALSE(poll_all(g));
    CHECK_FALSE(g.run_one());
    CHECK_FALSE(g.run_for(1h));
    CHECK(g.next_deadline() == clock::time_point::max());
    CHECK_FALSE(is_readable(g));
  }

  TEST_CASE("the descriptor is readable when a timer is due, and not before") {
    const auto start = clock::now();
    clock::time_point woken;
    guest_runtime g;
    g.start([&] {
      vigil::sleep_for(20ms);
      woken = clock::now();
      vigil::sleep_for(1h);
    });
    CHECK(poll_all(g));
    if (woken == clock::time_point()) {
      CHECK(g.next_deadline() >= start + 20ms);
      CHECK(g.next_deadline() < start + 1h);
    }
    while (woken == clock::time_point()) {
      const bool was_early = clock::now() < start + 20ms;
      REQUIRE(is_readable(g, -1));
      CHECK((was_early || clock::now() >= start + 20ms));
      CHECK(poll_all(g));
    }
    CHECK(woken - start >= 20ms);
    CHECK(g.next_deadline() > start + 1h);
    CHECK_FALSE(is_readable(g));
  }

  TEST_CASE("a host that waits for the descriptor polls once for each event") {
    guest_runtime g;
    constexpr int sleeps = 20;
    g.start([] {
      for (int i = 0; i < sleeps; ++i)
        vigil::sleep_for(1ms);
    });
    // A poll that took longer may have left work, if the machine had no time for it.
    constexpr auto longest_poll = 1ms;
    int polls = 0;
    for (bool goes_on = true; goes_on;) {
      REQUIRE(is_readable(g, -1));
      const auto start = clock::now();
      goes_on = g.poll();
      if (clock::now() - start < longest_poll) ++polls;
    }
    // One in vain at most for each, see descriptor().
    CHECK(polls <= 2 * (sleeps + 1));
  }

  TEST_CASE("another thread's send makes the descriptor readable") {
    guest_runtime g;
    auto ch = vigil::make_channel<int>(1);
    int got = 0;
    g.start([&] { got = *ch.recv(); });
    CHECK(poll_all(g));
    CHECK_FALSE(is_readable(g));
    CHECK(g.next_deadline() == clock::time_point::max());
    std::thread sender([&] { ch.send(7); });
    CHECK(is_readable(g, -1));
    sender.join();
    CHECK(g.next_deadline() <= clock::now());
    CHECK_FALSE(poll_all(g));
    CHECK(got == 7);
  }

  TEST_CASE("many threads wake it, and none is lost") {
    guest_runtime g;
    auto ch = vigil::make_channel<int>();
    constexpr int threads = 4;
    constexpr int each = 200;
    int sum = 0;
    g.start([&] {
      for (int i = 0; i < threads * each; ++i)
        sum += *ch.recv();
    });
    std::vector<std::thread> senders;
    for (int i = 0; i < threads; ++i) {
      senders.emplace_back([&] {
        for (int k = 0; k < each; ++k)
          ch.send(1);
      });
    }
    serve(g);
    for (std::thread& t : senders)
      t.join();
    CHECK(sum == threads * each);
  }

  TEST_CASE("the host's own calls reach the fibers") {
    guest_runtime g;
    auto ch = vigil::make_channel<int>(1);
    std::vector<int> seen;
    g.start([&] {
      while (const auto v = ch.recv())
        seen.push_back(*v);
    });
    CHECK(poll_all(g));
    CHECK(vigil::this_fiber::id() == 0);
    ch.send(1);
    CHECK(is_readable(g));
    CHECK(poll_all(g));
    g.runtime().go([&] { ch.send(2); });
    CHECK(is_readable(g));
    CHECK(poll_all(g));
    g.runtime().post([&] { ch.close(); });
    CHECK(is_readable(g));
    while (g.poll())
      static_cast<void>(is_readable(g, -1));
    CHECK(seen == std::vector<int>{1, 2});
  }

  TEST_CASE("blocking work wakes it") {
    guest_runtime g;
    int got = 0;
    g.start([&] {
      got = vigil::blocking([] {
        std::this_thread::sleep_for(2ms);  // a call that blocks a thread
        return 5;
      });
    });
    serve(g);
    CHECK(got == 5);
  }

  TEST_CASE("the exception of the main fiber leaves poll, once") {
    guest_runtime g;
    g.start([] {
      vigil::sleep_for(1ms);
      throw std::runtime_error("from the main fiber");
    });
    CHECK_THROWS_WITH(serve(g), "from the main fiber");
    CHECK_FALSE(g.poll());
    bool ran = false;
    g.start([&] { ran = true; });
    serve(g);
    CHECK(ran);
  }

  TEST_CASE("mistakes are errors that say so") {
    vigil::options two;
    two.workers = 2;
    CHECK_THROWS_AS(guest_runtime{two}, std::invalid_argument);
    guest_runtime g;
    auto may_end = vigil::make_channel<int>(1);
    int refused = 0;
    g.start([&] {
      const auto is_refused = [&](auto call) {
        try {
          call();
        } catch (const wrong_place&) {
          ++refused;
        }
      };
      is_refused([&] { g.poll(); });
      is_refused([&] { g.run_one(); });
      is_refused([&] { g.run_for(1ms); });
      guest_runtime inner;
      is_refused([&] { inner.start([] {}); });
      static_cast<void>(may_end.recv());
    });
    CHECK_THROWS_AS(g.start([] {}), wrong_place);
    CHECK(poll_all(g));
    std::thread other([&] {
      CHECK_THROWS_AS(g.poll(), wrong_place);
      CHECK_THROWS_AS(g.run_one(), wrong_place);
      CHECK_THROWS_AS(g.run_for(1ms), wrong_place);
    });
    other.join();
    CHECK_THROWS_AS(g.runtime().run([] {}), wrong_place);
    may_end.send(1);
    serve(g);
    CHECK(refused == 4);
    void (*none)() = nullptr;
    CHECK_THROWS_AS(g.start(none), std::invalid_argument);
  }

  TEST_CASE("fibers that never wait do not keep poll from returning") {
    std::uint64_t yields = 0;
    guest_runtime g;
    g.start([&] {
      for (;;) {
        ++yields;
        vigil::this_fiber::yield();
      }
    });
    std::uint64_t before = 0;
    for (int i = 0; i < 5; ++i) {
      do {
        REQUIRE(g.poll());
      } while (yields == before);  // the machine had no time for it
      before = yields;
      CHECK(is_readable(g));
      CHECK(g.next_deadline() <= clock::now());
    }
  }

  // libuv: run_once.
  TEST_CASE("run_one waits until something has run") {
    guest_runtime g;
    int done = 0;
    g.start([&] {
      for (; done < 3; ++done)
        vigil::sleep_for(2ms);
    });
    const auto start = clock::now();
    int calls = 0;
    while (g.run_one())
      ++calls;
    CHECK(done == 3);
    CHECK(calls >= 3);
    CHECK(clock::now() - start >= 6ms);
  }

  TEST_CASE("run_for waits for so long, or until the end") {
    int beats = 0;
    guest_runtime g;
    g.start([&] {
      for (;; ++beats)
        vigil::sleep_for(1ms);
    });
    auto start = clock::now();
    CHECK(g.run_for(10ms));
    CHECK(clock::now() - start >= 10ms);
    while (beats == 0)
      CHECK(g.run_for(1ms));
    CHECK(g.run_for(0ms));
    CHECK(g.run_for(-1h));
    g.runtime().request_stop();
    CHECK_FALSE(g.run_for(std::chrono::hours::max()));
  }

  TEST_CASE("no deadlock is reported: the host may do something") {
    guest_runtime g(with_fatal_deadlocks());
    auto ch = vigil::make_channel<int>(1);
    int got = 0;
    g.start([&] { got = *ch.recv(); });
    CHECK(poll_all(g));
    CHECK(poll_all(g));
    ch.send(3);
    CHECK_FALSE(poll_all(g));
    CHECK(got == 3);
  }

  TEST_CASE("the destructor stops the fibers, and waits until they have ended") {
    int ended = 0;
    {
      guest_runtime g;
      g.start([&] {
        for (int i = 0; i < 10; ++i) {
          vigil::go([&] {
            try {
              vigil::sleep_for(1h);
            } catch (const vigil::stopped&) {
              const vigil::this_fiber::shield cleans_up;
              vigil::sleep_for(1ms);
              ++ended;
              throw;
            }
          });
        }
        vigil::sleep_for(1h);
      });
      CHECK(poll_all(g));
    }
    CHECK(ended == 10);
    {
      const guest_runtime never_started;
      guest_runtime never_polled;
      never_polled.start([&] { ++ended; });
    }
    CHECK(ended == 10);
  }

  TEST_CASE("a signal of stop_on ends it") {
    vigil::options o;
    o.stop_on = {SIGUSR1};
    o.grace = 0s;
    guest_runtime g(o);
    bool stopped = false;
    g.start([&] {
      try {
        vigil::sleep_for(1h);
      } catch (const vigil::stopped&) {
        stopped = true;
        throw;
      }
    });
    CHECK(poll_all(g));
    CHECK_FALSE(is_readable(g));
    ::raise(SIGUSR1);
    CHECK(is_readable(g, -1));
    serve(g);
    CHECK(stopped);
  }

  TEST_CASE("a poll inside a catch block leaves the host's exception alone") {
    guest_runtime g;
    auto may_end = vigil::make_channel<int>(1);
    int inside = -1;
    g.start([&] {
      inside = std::uncaught_exceptions() + (std::current_exception() != nullptr ? 1 : 0);
      try {
        throw 1;
      } catch (int) {
        static_cast<void>(may_end.recv());
        CHECK(std::current_exception() != nullptr);
      }
    });
    try {
      throw std::runtime_error("the host's");
    } catch (const std::runtime_error&) {
      CHECK(poll_all(g));
      try {
        throw;
      } catch (const std::runtime_error& e) {
        CHECK(std::string(e.what()) == "the host's");
      }
    }
    CHECK(inside == 0);
    may_end.send(1);
    serve(g);
  }

  TEST_CASE("two guests share a thread, and send each other") {
    guest_runtime a;
    guest_runtime b;
    auto there = vigil::make_channel<int>();
    auto back = vigil::make_channel<int>();
    int got = 0;
    a.start([&] {
      for (int i = 0; i < 50; ++i) {
        there.send(i);
        got += *back.recv();
      }
    });
    b.start([&] {
      for (int i = 0; i < 50; ++i)
        back.send(*there.recv());
    });
    bool goes_on = true;
    while (goes_on) {
      pollfd both[] = {{a.descriptor(), POLLIN, 0}, {b.descriptor(), POLLIN, 0}};
      REQUIRE(::poll(both, 2, -1) > 0);
      const bool first = a.poll();
      const bool second = b.poll();
      goes_on = first || second;
    }
    CHECK(got == 49 * 25);
  }

  TEST_CASE("a run that ends when all is done goes on after its main fiber") {
    vigil::options o;
    o.exit = vigil::exit_when::all_done;
    guest_runtime g(o);
    bool fired = false;
    g.start([&] { vigil::after_func(5ms, [&] { fired = true; }); });
    serve(g);
    CHECK(fired);
  }

  TEST_CASE("its runtime also runs without a host") {
    guest_runtime g;
    CHECK(g.runtime().run([] {
      vigil::sleep_for(2ms);
      return 4;
    }) == 4);
    int got = 0;
    g.start([&] { got = 1; });
    serve(g);
    CHECK(got == 1);
  }

  TEST_CASE("guests on several threads do not meet") {
    std::atomic<int> ended{0};
    std::vector<std::thread> hosts;
    for (int i = 0; i < 4; ++i) {
      hosts.emplace_back([&] {
        guest_runtime g;
        g.start([&] {
          for (int k = 0; k < 20; ++k)
            vigil::spawn([] { vigil::sleep_for(100us); }).join();
          ended.fetch_add(1);
        });
        serve(g);
      });
    }
    for (std::thread& t : hosts)
      t.join();
    CHECK(ended.load() == 4);
  }
}
