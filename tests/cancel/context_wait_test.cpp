// Waits under a context: each kind, and what is left behind: nothing.
#include "cancel/context_core.hpp"
#include "cancel/failure.hpp"
#include "support/in_runtime.hpp"

#include <vigil/single_flight.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::background;
using vigil::cancelled;
using vigil::context;
using vigil::make_channel;
using vigil::sleep_for;
using vigil::with_cancel;
using vigil::with_timeout;
using vigil::testing::settle;
using clock = vigil::clock;

std::size_t waiters_under(const context& ctx) {
  return ctx.stop()->waiters();
}

void yield_until(const bool& flag) {
  while (!flag)
    vigil::this_fiber::yield();
}

// Every wait that takes a context; each would wait for ever. But for blocking(),
// which holds virtual time: tests/blocking.
struct kind {
  const char* name;
  std::function<void(const context&)> wait;
  bool a_stop_ends_it = true;  // not a lock
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
         flights.call(c, 1, [] { return 2; });
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
           s.acquire(c, 2);
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

vigil::options one_worker() {
  vigil::options o;
  o.workers = 1;
  return o;
}

vigil::testing::virtual_options with_grace(std::chrono::nanoseconds grace) {
  vigil::testing::virtual_options how;
  how.runtime.grace = grace;
  return how;
}

}  // namespace

TEST_SUITE("a wait under a context") {
  TEST_CASE("throws cancelled with code and cause when the context is cancelled, of each kind") {
    for (const kind& k : kinds()) {
      CAPTURE(k.name);
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
      CAPTURE(k.name);
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
      CAPTURE(k.name);
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
      CAPTURE(k.name);
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

  TEST_CASE("that can be completed at once is, although the context is done") {
    in_virtual([] {
      auto it = with_cancel(background());
      it.cancel();
      const auto c = make_channel<int>(1);
      c.send(7, it.ctx);
      CHECK(c.recv(it.ctx) == 7);
      sleep_for(0s, it.ctx);
      sleep_for(-1s, it.ctx);
      vigil::sleep_until(clock::now(), it.ctx);
      auto f = vigil::spawn([] { return 3; });
      settle();
      CHECK(f.join(it.ctx) == 3);
    });
  }

  TEST_CASE("that is a send leaves the value in the caller's hand when it is cancelled") {
    in_virtual([] {
      auto it = with_timeout(background(), 1s);
      const auto c = make_channel<std::unique_ptr<int>>();
      auto value = std::make_unique<int>(7);
      CHECK_THROWS_AS(c.send(std::move(value), it.ctx), cancelled);
      REQUIRE(value != nullptr);
      CHECK(*value == 7);
      CHECK_FALSE(c.try_recv());
    });
  }

  TEST_CASE("that is a join leaves the handle joinable when it is cancelled") {
    in_virtual([] {
      auto f = vigil::spawn([] {
        sleep_for(2s);
        return 7;
      });
      CHECK_THROWS_AS(f.join(with_timeout(background(), 1s).ctx), cancelled);
      REQUIRE(f.joinable());
      CHECK(f.join() == 7);
    });
  }

  TEST_CASE("under a context that is never done waits as without one") {
    in_virtual([] {
      const context never = vigil::without_cancel(background());
      const auto c = make_channel<int>();
      vigil::go([c] { c.send(1); });
      CHECK(c.recv(never) == 1);
      sleep_for(1s, never);
    });
  }

  TEST_CASE("of a plain thread is cancelled as well") {
    auto it = with_cancel(background());
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    for (const bool sends : {false, true}) {
      threads.emplace_back([&, sends] {
        const auto c = make_channel<int>();
        try {
          sends ? c.send(1, it.ctx) : static_cast<void>(c.recv(it.ctx));
        } catch (const cancelled&) {
          ++ended;
        }
      });
    }
    while (waiters_under(it.ctx) < 2)
      std::this_thread::yield();
    it.cancel();
    for (auto& t : threads)
      t.join();
    CHECK(ended.load() == 2);
    CHECK_THROWS_AS(make_channel<int>().recv(it.ctx), cancelled);
  }

  TEST_CASE("of a plain thread that joins a fiber is cancelled, or brings the result") {
    vigil::runtime rt(one_worker());
    auto stop_it = with_cancel(background());
    std::thread joiner;
    std::atomic<int> got{0};
    std::atomic<bool> gave_up{false};
    rt.run([&] {
      const auto guard = rt.make_work_guard();
      auto quick = std::make_shared<vigil::fiber<int>>(vigil::spawn([] {
        sleep_for(2ms);
        return 7;
      }));
      auto slow = std::make_shared<vigil::fiber<>>(vigil::spawn([] { sleep_for(24h); }));
      joiner = std::thread([&, quick, slow] {
        auto it = with_cancel(background());
        got = quick->join(it.ctx);
        try {
          slow->join(stop_it.ctx);
        } catch (const cancelled&) {
          gave_up = true;
        }
        slow->request_stop();
      });
      while (waiters_under(stop_it.ctx) == 0)
        sleep_for(100us);
      stop_it.cancel();
      while (!gave_up)
        sleep_for(100us);
      joiner.join();
    });
    CHECK(got.load() == 7);
  }

  TEST_CASE("in a catch block or under a shield is cancelled all the same") {
    in_virtual([] {
      auto it = with_timeout(background(), 1s);
      try {
        throw failure{1};
      } catch (const failure&) {
        CHECK_THROWS_AS(sleep_for(24h, it.ctx), cancelled);
      }
      const vigil::this_fiber::shield s;
      CHECK_THROWS_AS(sleep_for(24h, it.ctx), cancelled);
    });
  }

  TEST_CASE("keeps the context, whatever becomes of the handle that it was given") {
    in_virtual([] {
      context ctx = with_timeout(background(), 1s).ctx;
      vigil::go([&] { ctx = context(); });
      CHECK_THROWS_AS(sleep_for(24h, ctx), cancelled);
      CHECK_FALSE(static_cast<bool>(ctx));
    });
  }

  TEST_CASE("needs no memory of its own in the context: a thousand, cancelled, each once") {
    in_virtual([] {
      auto it = with_cancel(background());
      int ended = 0;
      for (int i = 0; i < 1000; ++i) {
        vigil::go([&, ctx = it.ctx] {
          try {
            sleep_for(24h, ctx);
          } catch (const cancelled&) {
            ++ended;
          }
        });
      }
      settle();
      CHECK(waiters_under(it.ctx) == 1000);
      it.cancel();
      settle();
      CHECK(ended == 1000);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("and value, deadline and cancel at once: one of them, and no value is lost") {
    in_runtime({{2, 4}, {}}, [] {
      int cancelled_ones = 0;
      for (int round = 0; round < rounds(3000); ++round) {
        auto parent = with_cancel(background());
        auto child = with_timeout(parent.ctx, std::chrono::microseconds(round % 60));
        const auto c = make_channel<std::unique_ptr<int>>();
        auto sender = vigil::spawn([&] {
          auto value = std::make_unique<int>(1);
          const auto sent = static_cast<bool>(c.send_for(std::move(value), 20us));
          CHECK(sent == (value == nullptr));
          return sent;
        });
        auto canceller = vigil::spawn([&] { (round % 2 == 0 ? parent : child).cancel(); });
        bool got = false;
        try {
          got = c.recv(child.ctx).has_value();
        } catch (const cancelled&) {
          ++cancelled_ones;
        }
        CHECK(sender.join() == got);
        canceller.join();
        CHECK(waiters_under(child.ctx) == 0);
        CHECK_FALSE(c.try_recv());
      }
      CHECK(cancelled_ones > 0);
    });
  }
}

TEST_SUITE("select with on_done") {
  TEST_CASE("takes the case when the context is done, with its function") {
    in_virtual([] {
      const auto start = clock::now();
      auto it = with_timeout(background(), 1s);
      const auto c = make_channel<int>();
      bool done = false;
      CHECK(vigil::select(vigil::on_recv(c), vigil::on_done(it.ctx, [&] { done = true; })) == 1);
      CHECK(done);
      CHECK(since(start) == 1s);
      CHECK(vigil::select(vigil::on_done(it.ctx), vigil::on_timeout(1s)) == 0);
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("is not taken while the context is open, nor ever for one that is never done") {
    in_virtual([] {
      auto it = with_cancel(background());
      CHECK(vigil::select(vigil::on_done(it.ctx), vigil::otherwise()) == 1);
      CHECK(vigil::select(vigil::on_done(vigil::without_cancel(it.ctx)), vigil::on_timeout(1s)) ==
            1);
      it.cancel();
      CHECK(vigil::select(vigil::on_done(it.ctx), vigil::otherwise()) == 0);
      CHECK(vigil::select_ordered(vigil::on_done(it.ctx), vigil::on_timeout(0s)) == 0);
    });
  }

  TEST_CASE("has its turn among ready cases") {
    in_virtual([] {
      auto it = with_cancel(background());
      it.cancel();
      const auto c = make_channel<int>(1);
      c.send(1);
      int done = 0;
      for (int i = 0; i < 1000; ++i) {
        vigil::select(vigil::on_recv(c, [&] { c.send(1); }),
                      vigil::on_done(it.ctx, [&] { ++done; }));
      }
      CHECK(done > 380);
      CHECK(done < 620);
    });
  }
}

TEST_SUITE("the runtime's root context") {
  TEST_CASE("is done when main has returned, before the grace passes") {
    bool cancelled_first = false;
    bool stopped_later = false;
    in_virtual(with_grace(5s), [&] {
      vigil::go([&] {
        const auto start = clock::now();
        const context ctx = background();
        try {
          sleep_for(24h, ctx);
        } catch (const cancelled& c) {
          cancelled_first = c.is_by_shutdown() && c.code() == std::errc::operation_canceled &&
                            since(start) == 1s && background().is_done();
        }
        try {
          sleep_for(24h);
        } catch (const vigil::stopped&) {
          stopped_later = since(start) == 6s;
          throw;
        }
      });
      sleep_for(1s);
    });
    CHECK(cancelled_first);
    CHECK(stopped_later);
  }

  TEST_CASE("is done first also if a signal or request_stop begins the end without a grace") {
    vigil::runtime rt(one_worker());
    std::atomic<int> by_shutdown{0};
    std::atomic<int> stopped{0};
    rt.run([&] {
      for (int i = 0; i < 3; ++i) {
        vigil::go([&] {
          try {
            sleep_for(24h, background());
          } catch (const cancelled& c) {
            if (c.is_by_shutdown()) ++by_shutdown;
            throw;
          }
        });
      }
      while (waiters_under(background()) < 3)
        sleep_for(100us);
      rt.request_stop();
      try {
        sleep_for(24h);
      } catch (const vigil::stopped&) {
        ++stopped;
        throw;
      }
    });
    CHECK(by_shutdown.load() == 3);
    CHECK(stopped.load() == 1);
  }

  TEST_CASE("ends a go fiber, a callback and main silently by what its waits throw") {
    in_virtual(with_grace(1s), [] {
      vigil::go([] { sleep_for(24h, background()); });
      vigil::after_func(0s, [] { sleep_for(24h, background()); });
      auto joined = std::make_shared<vigil::fiber<int>>(vigil::spawn([] {
        sleep_for(24h, background());
        return 1;
      }));
      vigil::go([joined] { joined->join(); });
      sleep_for(1s);
    });
  }

  TEST_CASE("is a new one in the next run, and the old one stays done") {
    vigil::runtime rt(one_worker());
    context first;
    context below;
    rt.run([&] {
      first = background();
      below = with_cancel(first).ctx;
    });
    CHECK(first.is_done());
    CHECK(below.is_done());
    rt.run([&] {
      CHECK_FALSE(background() == first);
      CHECK_FALSE(background().is_done());
    });
  }

  TEST_CASE("lets a function of after_func run in the grace") {
    bool ran = false;
    in_virtual(with_grace(1s), [&] {
      static_cast<void>(vigil::after_func(background(), [&] { ran = true; }));
      vigil::go([] { sleep_for(500ms); });
    });
    CHECK(ran);
  }

  TEST_CASE("asked for first when the shutdown has begun it is done") {
    bool done = false;
    in_virtual(with_grace(2s), [&] {
      vigil::go([&] {
        sleep_for(1s);
        done = background().is_done();
      });
    });
    CHECK(done);
  }
}
