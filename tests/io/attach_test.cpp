// The watch inside an io_context: its owner, its user, and its next owner.
#include "core/base/clock_source.hpp"
#include "io/io_test.hpp"
#include "io/io_watch.hpp"
#include "support/at_rest.hpp"

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/post.hpp>

using namespace vigil::io_testing;

namespace {

vigil::detail::io_watch& own_watch() {
  auto& present = vigil::detail::current_scheduler()->watches().present();
  return *present.as_io_watch();
}

// Begins an operation that runs nowhere, ends only when it is cancelled, and then calls
// asked(end) where it was cancelled. Its executor is that of `c`.
template <class F>
struct until_cancelled {
  using executor_type = asio::io_context::executor_type;

  executor_type get_executor() const noexcept { return c->get_executor(); }

  template <class Handler>
  void operator()(Handler handler) const {
    auto slot = asio::get_associated_cancellation_slot(handler);
    auto kept = std::make_shared<Handler>(std::move(handler));
    slot.assign([asked = asked, kept](asio::cancellation_type_t) {
      asked([kept] { (*kept)(error_code(asio::error::operation_aborted)); });
    });
  }

  asio::io_context* c;
  F asked;
};

template <class F>
void wait_until_cancelled(asio::io_context& c, F asked) {
  const auto soon = use_fiber.within(1ms);
  CHECK(error_of([&] {
          asio::async_initiate<const vigil::io::fiber_token, void(error_code)>(
              until_cancelled<F>{&c, std::move(asked)}, soon);
        }) == asio::error::timed_out);
}

vigil::options attached(asio::io_context& c) {
  vigil::options o;
  vigil::io::attach(o, c);
  return o;
}

}  // namespace

TEST_SUITE("io: the watch") {
  TEST_CASE("fibers talk over sockets of the runtime's io_context, which is always the same") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      auto& c = vigil::io::io_context();
      CHECK(&vigil::io::io_context() == &c);
      ping_pong(c, rounds(1000));
    });
  }

  TEST_CASE("of two fibers that ask for the runtime's io_context at once both get it") {
    vigil::options o;
    o.workers = 2;
    for (int i = 0; i < rounds(500); ++i) {
      vigil::run(o, [] {
        std::atomic<int> there{0};
        const auto ask = [&there] {
          there.fetch_add(1);
          while (there.load() < 2)  // one on each worker
            std::this_thread::yield();
          return &vigil::io::io_context();
        };
        auto other = vigil::spawn(ask);
        auto* const mine = ask();
        CHECK(other.join() == mine);
      });
    }
  }

  // Node, libuv: a foreign poll on the loop's descriptor works (embed).
  TEST_CASE("fibers talk over sockets of the caller's") {
    asio::io_context own;
    in_runtime({.workers = {1, 2}, .settings = attached(own)}, [&] {
      CHECK(&vigil::io::io_context() == &own);
      ping_pong(own, rounds(1000));
    });
    asio::io_context hinted(1);
    in_runtime({.workers = {1, 2}, .settings = attached(hinted)},
               [&] { ping_pong(hinted, rounds(1000)); });
  }

  // Node, libuv: a foreign poll on the loop's descriptor works (embed). Asio:
  // several threads on one io_context (fiber#138, #101).
  TEST_CASE("fibers talk while threads of the caller's run the io_context, too") {
    asio::io_context own;
    in_runtime({.workers = {1, 2}, .settings = attached(own)}, [&] {
      for (const int threads : {1, 3}) {
        {
          const run_by_threads runners(own, threads);
          ping_pong(own, rounds(1000));
          for (int i = 0; i < rounds(100); ++i) {
            const auto start = vigil::clock::now();
            vigil::sleep_for(100us);
            REQUIRE(since(start) >= 100us);
          }
        }
      }
    });
  }

  // Asio: one instance for each process (fiber#217).
  TEST_CASE("several runtimes, each with its own io_context or all in one") {
    asio::io_context common;
    std::vector<std::thread> threads;
    std::barrier begun(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        vigil::options o = i < 2 ? attached(common) : vigil::options();
        o.workers = 2;
        vigil::runtime rt(o);
        rt.run([&] {
          begun.arrive_and_wait();
          ping_pong(vigil::io::io_context(), rounds(300));
          for (int k = 0; k < rounds(100); ++k)
            vigil::sleep_for(50us);
        });
        begun.arrive_and_wait();
      });
    }
    for (auto& t : threads)
      t.join();
  }

  // Asio: wake-up lost while the waiting place changes.
  TEST_CASE("it is attached while workers sleep on the futex: no wake-up is lost") {
    for (int round = 0; round < rounds(10'000); ++round) {
      vigil::options o;
      o.workers = 2;
      vigil::run(o, [round] {
        auto woken = vigil::make_channel<int>();
        auto late = vigil::spawn([] { vigil::sleep_for(1h); });
        auto by_thread = vigil::spawn([&] { return woken.recv(); });
        std::thread outside([&] { woken.send(round); });
        if (round % 2 == 0) vigil::this_fiber::yield();
        socket_pair s(vigil::io::io_context());
        auto reader = vigil::spawn([&] {
          char byte = 0;
          return s.near.async_read_some(asio::buffer(&byte, 1), use_fiber);
        });
        s.far.async_write_some(asio::buffer("x", 1), use_fiber);
        REQUIRE(reader.join() == 1);
        REQUIRE(by_thread.join() == round);
        outside.join();
        if (round % 16 == 0) vigil::sleep_for(20us);
      });
    }
  }

  // Asio: I/O starves fibers, fibers starve I/O.
  TEST_CASE("I/O does not wait behind a computing fiber while a worker is idle") {
    in_runtime({.workers = {2}}, [] {
      for (int i = 0; i < rounds(100); ++i) {
        socket_pair s(vigil::io::io_context());
        std::atomic<bool> begun{false};
        std::atomic<bool> read{false};
        auto reader = vigil::spawn([&] {
          char byte = 0;
          begun.store(true);
          s.near.async_read_some(asio::buffer(&byte, 1), use_fiber);
          read.store(true);
        });
        while (!begun.load())
          vigil::sleep_for(50us);
        std::thread writer([&, &sched = *vigil::detail::current_scheduler()] {
          wait_until_resting(sched, 1);
          asio::write(s.far, asio::buffer("x", 1));
        });
        while (!read.load()) {  // never gives up its worker
        }
        writer.join();
        reader.join();
      }
    });
  }

  // Node, libuv: recursive setImmediate lets others through; recursive nextTick
  // starves them. Asio: I/O starves fibers, fibers starve I/O.
  TEST_CASE("busy workers collect ready I/O") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<bool> over{false};
      auto a = vigil::spawn([&] {
        while (!over.load())
          vigil::this_fiber::yield();
      });
      auto b = vigil::spawn([&] {
        while (!over.load())
          vigil::this_fiber::yield();
      });
      ping_pong(vigil::io::io_context(), rounds(200));
      over.store(true);
      a.join();
      b.join();
    });
  }

  TEST_CASE("an earlier deadline from a plain thread reaches it") {
    in_runtime({.workers = {1, 2}}, [] {
      vigil::io::io_context();
      const auto fired = vigil::make_channel<int>(1);
      auto t = vigil::after_func(2h, [fired] { static_cast<void>(fired.try_send(1)); });
      const auto announced = vigil::runtime::current().make_work_guard();
      std::thread outside([&, &sched = *vigil::detail::current_scheduler()] {
        wait_until_at_rest(sched);
        t.reset(1ms);
      });
      CHECK(fired.recv() == 1);
      outside.join();
    });
  }

  // Asio: restart (fiber#239), stop.
  TEST_CASE("in a stopped io_context time goes on, and cancelled operations end") {
    for (const unsigned workers : {1u, 2u}) {
      asio::io_context own;
      in_runtime({.workers = {workers}, .settings = attached(own)}, [&] {
        socket_pair s(own);
        char byte = 0;
        // Long enough for another worker to take the watch; the case holds either way.
        const auto until = vigil::clock::now() + 5ms;
        while (vigil::clock::now() < until) {
        }
        own.stop();
        const auto start = vigil::clock::now();
        vigil::sleep_for(1ms);
        CHECK(since(start) >= 1ms);
        CHECK(error_of([&] {
                s.near.async_read_some(asio::buffer(&byte, 1), use_fiber.within(1ms));
              }) == asio::error::timed_out);
        // Another worker may have it run for a moment, for the cancelled operation.
        while (!own.stopped())
          vigil::sleep_for(100us);
        auto reader =
            vigil::spawn([&] { return s.near.async_read_some(asio::buffer(&byte, 1), use_fiber); });
        vigil::sleep_for(1ms);
        asio::write(s.far, asio::buffer("x", 1));
        CHECK_FALSE(reader.join_for(2ms));
        vigil::io::restart(own);
        CHECK(reader.join() == 1);
        vigil::go([&own] {
          socket_pair mine(own);
          char unused = 0;
          mine.near.async_read_some(asio::buffer(&unused, 1), use_fiber);
        });
        vigil::this_fiber::yield();
        own.stop();
        vigil::sleep_for(1ms);  // the run ends all the same
      });
    }
  }

  TEST_CASE("a restart is not undone by the one that ends cancelled operations") {
    for (const unsigned workers : {1u, 2u}) {
      asio::io_context own;
      in_runtime({.workers = {workers}, .settings = attached(own)}, [&] {
        socket_pair s(own);
        own.stop();
        // Runs in the moment for which the watch restarts it.
        asio::post(own, [&own] { vigil::io::restart(own); });
        char byte = 0;
        CHECK(error_of([&] {
                s.near.async_read_some(asio::buffer(&byte, 1), use_fiber.within(1ms));
              }) == asio::error::timed_out);
        CHECK_FALSE(own.stopped());
      });
    }
  }

  TEST_CASE("restarts that race with operations that are cancelled all hold") {
    asio::io_context own;
    in_runtime({.workers = {2}, .settings = attached(own)}, [&] {
      socket_pair s(own);
      std::atomic<bool> over{false};
      auto reader = vigil::spawn([&] {
        char byte = 0;
        while (!over.load()) {
          CHECK(error_of([&] {
                  s.near.async_read_some(asio::buffer(&byte, 1), use_fiber.within(50us));
                }) == asio::error::timed_out);
        }
      });
      int undone = 0;
      std::thread user([&] {
        // Real time: blocks on purpose, so that the workers meet both states; the case
        // holds in any.
        for (int i = 0; i < rounds(300); ++i) {
          own.stop();
          std::this_thread::sleep_for(100us);
          vigil::io::restart(own);
          std::this_thread::sleep_for(300us);
          if (own.stopped()) ++undone;
        }
        over.store(true);
      });
      reader.join();
      user.join();
      CHECK(undone == 0);
    });
  }

  TEST_CASE("an operation is asked to end before the watch is told to look for its end") {
    asio::io_context own;
    in_runtime({.workers = {1}, .settings = attached(own)}, [&] {
      long told = -1;
      wait_until_cancelled(own, [&](auto end) {
        told = own_watch().cancelled();
        asio::post(own, end);
      });
      CHECK(told == 0);
    });
  }

  TEST_CASE("operations of other io_contexts are no reason to run a stopped one") {
    asio::io_context own;
    in_runtime({.workers = {1}, .settings = attached(own)}, [&] {
      asio::io_context foreign;
      const auto asked = vigil::make_channel<std::function<void()>>(1);
      auto waiting = vigil::spawn([&] {
        wait_until_cancelled(foreign, [&](auto end) { static_cast<void>(asked.try_send(end)); });
      });
      const auto end = asked.recv();  // on one worker: by now the fiber waits for the end
      CHECK(own_watch().cancelled() == 0);
      (*end)();
      waiting.join();
    });
  }

  TEST_CASE("one that is stopped before the runtime is made is refused") {
    asio::io_context own;
    own.stop();
    CHECK_THROWS_AS(vigil::runtime(attached(own)), std::invalid_argument);
  }

  // Asio: the io_context dies first: never resumed.
  TEST_CASE("one that is destroyed before the runtime leaves a runtime that keeps time") {
    auto own = std::make_unique<asio::io_context>();
    vigil::options o = attached(*own);
    o.workers = 2;
    vigil::runtime rt(o);
    rt.run([&] { ping_pong(*own, 10); });
    own.reset();
    rt.run([] {
      vigil::sleep_for(1ms);
      auto t = vigil::spawn([] { vigil::sleep_for(1ms); });
      t.join();
    });
  }

  // Asio: restart (fiber#239), stop.
  TEST_CASE("one that outlives the runtime can be run, and destroyed") {
    asio::io_context own;
    {
      vigil::runtime rt(attached(own));
      rt.run([&] { ping_pong(own, 10); });
    }
    bool ran = false;
    asio::post(own, [&] { ran = true; });
    own.restart();
    CHECK(own.run() > 0);
    CHECK(ran);
  }

  TEST_CASE("one that a runtime has left serves the next one after a restart") {
    asio::io_context own;
    for (const bool runs : {false, true, true}) {
      {
        vigil::runtime rt(attached(own));
        if (runs) rt.run([&] { ping_pong(own, 10); });
      }
      vigil::io::restart(own);
    }
  }

  // Node, libuv: poll timeout: no kernel sleep while there is work, none without
  // timers; idle time counts only the wait. Asio: spinning at 100 % (fiber#98,
  // #102).
  TEST_CASE("a lone sleep costs one wait, and idle workers make none") {
    in_runtime({.workers = {1, 2}}, [] {
      vigil::io::io_context();
      vigil::sleep_for(1ms);
      const auto before = vigil::stats();
      const int sleeps = 20;
      for (int i = 0; i < sleeps; ++i)
        vigil::sleep_for(1ms);
      const auto after = vigil::stats();
      CHECK(after.kernel_waits - before.kernel_waits <= static_cast<std::uint64_t>(sleeps) + 5);
      CHECK(after.wake_calls - before.wake_calls <= 5);
    });
  }
}
