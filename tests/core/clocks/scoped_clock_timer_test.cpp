// wall::scoped_timer and boot::scoped_timer.
#include "core/clocks/clocks_test.hpp"

#include <string>
#include <thread>

using namespace vigil::testing_support;

namespace {

struct on_wall {
  using scoped_timer = vigil::wall::scoped_timer;

  static auto now() { return vigil::wall_clock::now(); }

  template <class F>
  static vigil::wall::timer after(std::chrono::nanoseconds d, F f) {
    return vigil::wall::after_func_at(now() + d, std::move(f));
  }
};

struct on_boot {
  using scoped_timer = vigil::boot::scoped_timer;

  static auto now() { return vigil::boot_clock::now(); }

  template <class F>
  static vigil::boot::timer after(std::chrono::nanoseconds d, F f) {
    return vigil::boot::after_func_at(now() + d, std::move(f));
  }
};

template <class On>
void stops_at_the_end() {
  for_each_seed(5, [] {
    int runs = 0;
    {
      const typename On::scoped_timer pending = On::after(1s, [&] { ++runs; });
      CHECK(pending.get());
    }
    sleep_for(2s);
    CHECK(runs == 0);
  });
}

template <class On>
void waits_for_a_run() {
  for_each_seed(5, [] {
    std::string log;
    {
      const typename On::scoped_timer running = On::after(1s, [&] {
        sleep_for(2s);
        log += 'a';
      });
      sleep_for(1500ms);
    }
    log += 'b';
    CHECK(log == "ab");
  });
}

}  // namespace

TEST_SUITE("scoped_timer on another clock") {
  TEST_CASE("stops a timer at the end of the scope") {
    stops_at_the_end<on_wall>();
    stops_at_the_end<on_boot>();
  }

  TEST_CASE("waits for a run in progress") {
    waits_for_a_run<on_wall>();
    waits_for_a_run<on_boot>();
  }

  TEST_CASE("waits although its fiber is asked to stop") {
    in_virtual([] {
      bool ended = false;
      bool waited = false;
      auto f = vigil::spawn([&] {
        const vigil::wall::scoped_timer t = on_wall::after(0s, [&] {
          sleep_for(1s);
          ended = true;
        });
        struct at_end {
          bool& ended;
          bool& waited;

          ~at_end() { waited = !ended; }
        };
        {
          const at_end here{ended, waited};
          sleep_for(1h);
        }
      });
      sleep_for(500ms);
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(waited);
      CHECK(ended);
    });
  }

  TEST_CASE("that ends inside its own callback does not wait for itself") {
    in_virtual([] {
      auto t = std::make_shared<vigil::boot::scoped_timer>();
      bool ran = false;
      *t = on_boot::after(1s, [&ran, &t] {
        t.reset();
        ran = true;
      });
      sleep_for(2s);
      CHECK(ran);
    });
  }

  TEST_CASE("an assignment ends the old one, a move hands over, release gives up") {
    in_virtual([] {
      std::string log;
      vigil::wall::scoped_timer t = on_wall::after(1s, [&] { log += 'a'; });
      t = on_wall::after(1s, [&] { log += 'b'; });
      vigil::wall::scoped_timer other = std::move(t);
      CHECK_FALSE(t.get());
      CHECK(other->stop());
      CHECK_FALSE((*other).reset(on_wall::now() + 1s));
      sleep_for(2s);
      CHECK(log == "b");
      other = on_wall::after(1s, [&] { log += 'c'; });
      const vigil::wall::timer given = other.release();
      other = {};
      sleep_for(2s);
      CHECK(log == "bc");
      const vigil::wall::scoped_timer channel = vigil::wall::timer(on_wall::now() + 1h);
      const vigil::wall::scoped_timer none;
    });
  }
}
