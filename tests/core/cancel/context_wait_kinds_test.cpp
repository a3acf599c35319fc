// Each kind of wait that takes a context: how the context ends it, and that nothing is
// left behind.
#include "core/cancel/cancel_test.hpp"
#include "support/note.hpp"

#include <vigil/single_flight.hpp>

#include <functional>
#include <mutex>
#include <string>

namespace {

using namespace vigil::testing_support;

void yield_until(const bool& flag) {
  while (!flag)
    vigil::this_fiber::yield();
}

// Every wait that takes a context; each would last for ever. blocking() is missing: it
// holds virtual time, and is tested in tests/core/blocking.
struct kind {
  const char* name;
  std::function<void(const context&)> wait;
  bool a_stop_ends_it = true;  // false for a lock
};

const std::vector<kind>& kinds() {
  static const std::vector<kind> all = {
      {"sleep_for", [](const context& c) { sleep_for(24h, c); }},
      {"sleep_until", [](const context& c) { vigil::sleep_until(clock::now() + 24h, c); }},
      {"recv", [](const context& c) { make_channel<int>().recv(c); }},
      {"recv of void", [](const context& c) { make_channel<void>().recv(c); }},
      {"recv of nil", [](const context& c) { vigil::channel<int>().recv(c); }},
      {"send", [](const context& c) { make_channel<int>().send(1, c); }},
      {"send of a copy",
       [](const context& c) {
         const std::string value = "x";
         make_channel<std::string>().send(value, c);
       }},
      {"send of void", [](const context& c) { make_channel<void>().send(c); }},
      {"send to nil", [](const context& c) { vigil::channel<int>().send(1, c); }},
      {"sender and receiver",
       [](const context& c) { vigil::sender<int>(make_channel<int>()).send(1, c); }},
      {"receiver", [](const context& c) { vigil::receiver<int>(make_channel<int>()).recv(c); }},
      {"join",
       [](const context& c) {
         auto child = vigil::spawn([] { sleep_for(24h); });
         child.join(c);
       }},
      {"mutex",
       [](const context& c) {
         vigil::mutex m;
         m.lock();
         m.lock(c);
       },
       false},
      {"shared_mutex, to write",
       [](const context& c) {
         vigil::shared_mutex m;
         m.lock_shared();
         m.lock(c);
       },
       false},
      {"shared_mutex, to read",
       [](const context& c) {
         vigil::shared_mutex m;
         m.lock();
         m.lock_shared(c);
       },
       false},
      {"condition_variable",
       [](const context& c) {
         vigil::mutex m;
         vigil::condition_variable changed;
         std::unique_lock lock(m);
         changed.wait(lock, c);
       }},
      {"condition_variable with a predicate",
       [](const context& c) {
         vigil::mutex m;
         vigil::condition_variable changed;
         std::unique_lock lock(m);
         try {
           changed.wait(lock, c, [] { return false; });
         } catch (const cancelled&) {
           CHECK(lock.owns_lock());
           CHECK_FALSE(m.try_lock());  // it has been taken back
           throw;
         }
       }},
      {"wait_group",
       [](const context& c) {
         vigil::wait_group group;
         group.add();
         group.wait(c);
       }},
      {"latch", [](const context& c) { vigil::latch(1).wait(c); }},
      {"latch, after arriving",
       [](const context& c) {
         vigil::latch both(2);
         try {
           both.arrive_and_wait(c);
         } catch (const cancelled&) {
           CHECK(both.count() == 1);
           throw;
         }
       }},
      {"once, for another's call",
       [](const context& c) {
         vigil::once once;
         bool begun = false;
         const auto other = vigil::spawn([&] {
           once.call([&] {
             begun = true;
             sleep_for(24h);
           });
         });
         yield_until(begun);
         once.call(c, [] {});
       }},
      {"single_flight, for another's call",
       [](const context& c) {
         vigil::single_flight<int, int> flights;
         bool begun = false;
         const auto other = vigil::spawn([&] {
           flights.call(1, [&] {
             begun = true;
             sleep_for(24h);
             return 1;
           });
         });
         yield_until(begun);
         flights.call(1, c, [] { return 2; });
       }},
      {"group",
       [](const context& c) {
         vigil::group g;
         g.go([] { sleep_for(24h); });
         g.wait(c);
       }},
      {"stop_and_wait",
       [](const context& c) {
         const auto over = make_channel<void>();
         const auto begun = std::make_shared<bool>(false);
         const auto timer = vigil::after_func(0s, [over, begun] {
           *begun = true;
           over.recv();
         });
         struct at_the_end {
           const vigil::channel<void>& over;

           ~at_the_end() { over.close(); }
         } const ends_it{over};
         yield_until(*begun);
         timer.stop_and_wait(c);
       }},
      {"semaphore",
       [](const context& c) {
         vigil::semaphore s(1);
         try {
           s.acquire(2, c);
         } catch (const cancelled&) {
           CHECK(s.available() == 1);
           throw;
         }
       }},
      {"rate_limiter",
       [](const context& c) {
         vigil::rate_limiter limiter(vigil::rate::per(1, 24h), 1);
         limiter.wait();
         limiter.wait(c);
       }},
  };
  return all;
}

}  // namespace

TEST_SUITE("a wait under a context") {
  TEST_CASE("throws cancelled with code and cause when the context is cancelled, of each kind") {
    for (const kind& k : kinds()) {
      NOTE("k.name: ", k.name);
      in_virtual([&] {
        const auto start = clock::now();
        auto it = with_cancel(background());
        int ended = 0;
        auto waiting = vigil::spawn([&] {
          try {
            k.wait(it.ctx);
          } catch (const cancelled& c) {
            CHECK(c.code() == std::errc::operation_canceled);
            CHECK(number_of(c.cause()) == 7);
            CHECK_FALSE(c.is_by_shutdown());
            ++ended;
          }
        });
        sleep_for(1s);
        CHECK(waiters_under(it.ctx) == 1);
        it.cancel(failure{7});
        CHECK(waiters_under(it.ctx) == 0);
        waiting.join();
        CHECK(ended == 1);
        CHECK(since(start) == 1s);
      });
    }
  }

  TEST_CASE("throws cancelled with the code of a timeout at the deadline, of each kind") {
    for (const kind& k : kinds()) {
      NOTE("k.name: ", k.name);
      in_virtual([&] {
        const auto start = clock::now();
        auto it = with_timeout(background(), 1s);
        try {
          k.wait(it.ctx);
          FAIL("it returned");
        } catch (const cancelled& c) {
          CHECK(c.code() == std::errc::timed_out);
          CHECK(c.cause() == nullptr);
        }
        CHECK(since(start) == 1s);
        CHECK(waiters_under(it.ctx) == 0);
      });
    }
  }

  TEST_CASE("throws at once if the context is done already, of each kind") {
    for (const kind& k : kinds()) {
      NOTE("k.name: ", k.name);
      in_virtual([&] {
        const auto start = clock::now();
        auto it = with_cancel(background());
        it.cancel();
        CHECK_THROWS_AS(k.wait(it.ctx), cancelled);
        CHECK(since(start) == 0s);
        CHECK(vigil::stats().timers_pending == 0);
      });
    }
  }

  TEST_CASE("ends by a stop of the fiber as ever (a lock does not), and leaves the context") {
    for (const kind& k : kinds()) {
      NOTE("k.name: ", k.name);
      in_virtual([&] {
        auto it = with_cancel(background());
        {
          auto waiting = vigil::spawn([&] { k.wait(it.ctx); });
          settle();
          CHECK(waiters_under(it.ctx) == 1);
          waiting.request_stop();
          if (!k.a_stop_ends_it) {
            CHECK_FALSE(waiting.join_for(1s));
            it.cancel();
          }
          CHECK_THROWS_AS(waiting.join(), cancelled);
        }
        CHECK(waiters_under(it.ctx) == 0);
      });
    }
  }

  TEST_CASE("ends by itself as without one, and leaves the context") {
    in_virtual([] {
      const auto start = clock::now();
      auto it = with_cancel(background());
      const auto c = make_channel<int>();
      vigil::go([c] {
        sleep_for(1s);
        c.send(7);
        c.recv();
      });
      CHECK(c.recv(it.ctx) == 7);
      CHECK(since(start) == 1s);
      c.send(8, it.ctx);
      sleep_for(1s, it.ctx);
      CHECK(since(start) == 2s);
      auto f = vigil::spawn([] {
        sleep_for(1s);
        return 9;
      });
      CHECK(f.join(it.ctx) == 9);
      c.close();
      CHECK(c.recv(it.ctx) == std::nullopt);
      CHECK_THROWS_AS(c.send(1, it.ctx), vigil::channel_closed);
      CHECK(waiters_under(it.ctx) == 0);
    });
  }
}
