// The end of a group: all of its fibers, and everything they held, are gone.
#include "core/cancel/cancel_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("group") {
  TEST_CASE("its end cancels, asks to stop and joins, even when the scope is unwound") {
    in_virtual([] {
      int local = 0;
      try {
        group g;
        g.go([&local] {
          struct at_end {
            int& n;

            ~at_end() { n = 7; }
          } const mark{local};

          const vigil::this_fiber::shield s;
          sleep_for(1s);
        });
        g.go([](const context& ctx) { ctx.done().recv(); });
        settle();
        throw failure{3};
      } catch (const failure& f) {
        CHECK(f.number == 3);
        CHECK(local == 7);
      }
    });
  }

  TEST_CASE("its end is not cut short by a stop of the joining fiber") {
    in_virtual([] {
      bool child_ended = false;
      auto owner = vigil::spawn([&] {
        group g;
        g.go([&] {
          const vigil::this_fiber::shield s;
          sleep_for(2s);
          child_ended = true;
        });
        g.wait();
      });
      sleep_for(1s);
      owner.request_stop();
      CHECK_THROWS_AS(owner.join(), cancelled);
      CHECK(child_ended);
    });
  }

  TEST_CASE("captures and fiber_locals of its fibers are destroyed when wait returns") {
    static std::atomic<int> locals{0};

    struct counted {
      counted() { ++locals; }

      counted(const counted&) { ++locals; }

      ~counted() { --locals; }
    };

    in_runtime({{1, 2}, {}}, [] {
      for (int round = 0; round < rounds(200); ++round) {
        static vigil::fiber_local<counted> local;
        const int before = locals.load();
        auto shared = std::make_shared<int>(1);
        group g;
        for (int i = 0; i < 4; ++i) {
          g.go([shared] {
            static_cast<void>(*local);
            vigil::this_fiber::yield();
          });
        }
        g.wait();
        CHECK(shared.use_count() == 1);
        CHECK(locals.load() == before);
      }
    });
  }

  TEST_CASE("at the shutdown its fibers and its waiters end silently") {
    in_virtual([] {
      vigil::go([] {
        group g;
        g.go([](const context& ctx) { sleep_for(1h, ctx); });
        g.go([] { sleep_for(1h); });
        g.wait();
      });
      sleep_for(1s);
    });
  }
}
