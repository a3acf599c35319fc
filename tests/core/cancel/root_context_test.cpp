// The runtime's root context: when it is done, and what it ends.
#include "core/cancel/cancel_test.hpp"

namespace {

using namespace vigil::testing_support;

vigil::testing::virtual_options with_grace(std::chrono::nanoseconds grace) {
  vigil::testing::virtual_options how;
  how.runtime.grace = grace;
  return how;
}

}  // namespace

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

  TEST_CASE("is done first even if a signal or request_stop begins the end without a grace") {
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

  TEST_CASE("ends a go fiber, a callback and main silently by the exception of their waits") {
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

  TEST_CASE("is done if it is first asked for after the shutdown has begun") {
    bool done = false;
    in_virtual(with_grace(2s), [&] {
      vigil::go([&] {
        sleep_for(1s);
        done = background().is_done();
      });
    });
    CHECK(done);
  }

  // Readying the main fiber because nothing holds the program takes a lock of its own.
  TEST_CASE("a function that it calls when it is done may be all that holds the program") {
    for (const bool from_outside : {false, true}) {
      auto how = one_worker();
      how.exit = vigil::exit_when::all_done;
      how.grace = 10s;
      vigil::runtime rt(how);
      std::atomic<bool> ran{false};
      std::thread stopper;
      rt.run([&] {
        static_cast<void>(vigil::after_func(background(), [&] { ran = true; }));
        vigil::go([&, from_outside] {
          if (from_outside) {
            stopper = std::thread([&] { rt.request_stop(); });
          } else {
            rt.request_stop();
          }
          sleep_for(24h, background());
        });
      });
      stopper.joinable() ? stopper.join() : void();
      CHECK(ran);
    }
  }
}
