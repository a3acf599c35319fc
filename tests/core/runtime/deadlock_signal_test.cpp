// Waits that a signal of stop_on can end are not a deadlock.
#include "support/at_rest.hpp"
#include "support/in_runtime.hpp"

#include <vigil/context.hpp>
#include <vigil/group.hpp>
#include <vigil/select.hpp>
#include <vigil/stop_token.hpp>
#include <vigil/sync.hpp>

#include <csignal>
#include <functional>
#include <stop_token>
#include <thread>

using namespace std::chrono_literals;
using vigil::background;
using vigil::context;

namespace {

vigil::options stopped_by_signal() {
  vigil::options o;
  o.workers = 2;
  o.deadlock = vigil::on_deadlock::fatal;
  o.stop_on = {SIGUSR1};
  return o;
}

// Runs f, and asks for a stop, as a signal would, when all its fibers wait. A real signal
// would end the process of a failing test.
void run_until_signal(const std::function<void()>& f, std::chrono::nanoseconds grace = 0s) {
  vigil::options o = stopped_by_signal();
  o.grace = grace;
  vigil::runtime rt(o);
  std::thread sender;
  rt.run([&] {
    sender = std::thread([&rt, &sched = *vigil::detail::current_scheduler()] {
      vigil::testing_support::wait_until_at_rest(sched);
      rt.request_stop();
    });

    struct joined {
      std::thread* of;

      ~joined() { of->join(); }
    } const at_end{&sender};

    f();
  });
}

bool is_deadlock(const std::function<void()>& f) {
  try {
    vigil::run(stopped_by_signal(), f);
  } catch (const vigil::deadlock&) {
    return true;
  }
  return false;
}

template <class F>
bool is_cancelled(F&& f) {
  try {
    f();
  } catch (const vigil::cancelled&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_SUITE("deadlock and stop_on") {
  // Go: ctx, stop := signal.NotifyContext(…); <-ctx.Done()
  TEST_CASE("a wait for the root context's end is a wait for a signal") {
    bool went_on = false;
    run_until_signal([&] {
      background().done().recv();
      went_on = true;
    });
    CHECK(went_on);
  }

  TEST_CASE("a wait for the end of a context far below the root is a wait for a signal") {
    bool went_on = false;
    run_until_signal([&] {
      const auto other = vigil::with_cancel(background());
      const auto above = vigil::with_cancel(background());
      const auto beside = vigil::with_cancel(above.ctx);
      static constexpr vigil::context_key<int> key;
      const auto below = vigil::with_cancel(vigil::with_value(above.ctx, key, 1));
      below.ctx.done().recv();
      went_on = true;
    });
    CHECK(went_on);
  }

  TEST_CASE("a function to be called at the end of the root context waits for a signal") {
    bool went_on = false;
    run_until_signal(
        [&] {
          const auto quit = vigil::make_channel<int>();
          const auto registered = vigil::after_func(background(), [quit] { quit.close(); });
          static_cast<void>(quit.recv());
          went_on = true;
        },
        1h);
    CHECK(went_on);
  }

  TEST_CASE("a std::stop_token of the root context waits for a signal") {
    bool went_on = false;
    run_until_signal(
        [&] {
          const auto quit = vigil::make_channel<int>();
          const std::stop_callback called(vigil::stop_token_of(background()),
                                          [&] { quit.close(); });
          static_cast<void>(quit.recv());
          went_on = true;
        },
        1h);
    CHECK(went_on);
  }

  TEST_CASE("a group whose fiber waits for the end of its context waits for a signal") {
    bool went_on = false;
    run_until_signal([&] {
      vigil::group g;
      g.go([&](const context& ctx) {
        ctx.done().recv();
        went_on = true;
      });
      g.wait();
    });
    CHECK(went_on);
  }

  TEST_CASE("idle workers beside a wait for the root context are not a deadlock") {
    bool went_on = false;
    run_until_signal([&] {
      auto jobs = vigil::make_channel<int>();
      vigil::go([jobs] { jobs.recv(); });
      vigil::select(vigil::on_done(background(), [&] { went_on = true; }),
                    vigil::on_recv(jobs, [](const std::optional<int>&) {}));
    });
    CHECK(went_on);
  }

  TEST_CASE("a wait that was given a context waits for a signal") {
    int ended = 0;
    run_until_signal([&] {
      auto jobs = vigil::make_channel<int>();
      ended += is_cancelled([&] { jobs.recv(background()); });
    });
    run_until_signal([&] {
      vigil::mutex m;
      m.lock();
      const auto under = vigil::with_cancel(background());
      ended += is_cancelled([&] { m.lock(under.ctx); });
      m.unlock();
    });
    CHECK(ended == 2);
  }

  TEST_CASE("on another fiber than main it is the same") {
    int ended = 0;
    run_until_signal([&] {
      auto other = vigil::spawn([&] {
        background().done().recv();
        ++ended;
      });
      other.join();
    });
    CHECK(ended == 1);
  }

  TEST_CASE("a wait that no signal ends is reported, although stop_on is set") {
    CHECK(is_deadlock([] {
      vigil::wait_group all;
      all.add();
      all.wait();
    }));
    CHECK(is_deadlock([] {
      const context apart = vigil::without_cancel(background());
      vigil::make_channel<int>().recv(apart);
    }));
    // The context is there, and nobody waits for its end any more.
    CHECK(is_deadlock([] {
      const auto made = vigil::with_cancel(background());
      static_cast<void>(made.ctx.done().recv_for(1ms));
      vigil::select(vigil::on_done(made.ctx, [] {}), vigil::on_timeout(1ms, [] {}));
      vigil::make_channel<int>().recv();
    }));
    // Only the end of the run would cancel this context, and the wait for it has ended.
    CHECK(is_deadlock([] {
      const auto made = vigil::with_cancel(background());
      auto f = vigil::spawn([&] { made.ctx.done().recv(); });
      made.cancel();
      f.join();
      vigil::make_channel<int>().recv();
    }));
  }
}
