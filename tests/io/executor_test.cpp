// The executor whose handlers are fibers: beside coroutines, futures and strands.
#include "io/io_test.hpp"
#include "support/at_rest.hpp"
#include "support/child.hpp"

#include <vigil/io/executor.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

using namespace vigil::io_testing;
using asio::use_awaitable;
using vigil::io::fiber_executor;

namespace {

namespace execution = asio::execution;

static_assert(execution::is_executor<fiber_executor>::value);
static_assert(std::is_convertible_v<fiber_executor, asio::any_io_executor>);
static_assert(asio::can_require<fiber_executor, execution::blocking_t::never_t>::value);
static_assert(asio::can_require<fiber_executor, execution::outstanding_work_t::tracked_t>::value);
static_assert(!asio::can_require<fiber_executor, execution::blocking_t::always_t>::value);

// A reference that shows when its holder has been destroyed.
using mark = std::shared_ptr<int>;

asio::awaitable<int> after_a_while(int value) {
  asio::steady_timer t(co_await asio::this_coro::executor, 1ms);
  co_await t.async_wait(use_awaitable);
  co_return value;
}

// Doubles its input until the channel is closed; waits as a fiber does.
asio::awaitable<void> doubles(vigil::channel<int> in, vigil::channel<int> out) {
  while (const auto n = in.recv()) {
    asio::steady_timer t(co_await asio::this_coro::executor, 10us);
    co_await t.async_wait(use_awaitable);
    out.send(*n * 2);
  }
  out.close();
}

// Writes a byte when all workers but the calling fiber's rest.
class late_writer {
 public:
  explicit late_writer(unix_socket& to)
      : thread_([&to, &sched = *vigil::detail::current_scheduler()] {
          wait_until_resting(sched, sched.workers().size() - 1);
          asio::write(to, asio::buffer("x", 1));
        }) {}

  ~late_writer() { thread_.join(); }

  late_writer(const late_writer&) = delete;
  late_writer& operator=(const late_writer&) = delete;

 private:
  std::thread thread_;
};

}  // namespace

TEST_SUITE("fiber_executor") {
  TEST_CASE("it meets Asio's requirements of an executor") {
    in_runtime({.workers = {1}}, [] {
      const auto ex = vigil::io::executor();
      CHECK(ex == vigil::io::executor());
      CHECK(asio::any_io_executor(ex) == asio::any_io_executor(vigil::io::executor()));
      CHECK(&asio::query(ex, execution::context) == &vigil::io::io_context());
      CHECK(asio::query(ex, execution::blocking) == execution::blocking.possibly);
      const auto posts = asio::require(ex, execution::blocking.never);
      CHECK(asio::query(posts, execution::blocking) == execution::blocking.never);
      const auto counts = asio::prefer(posts, execution::outstanding_work.tracked);
      CHECK(asio::query(counts, execution::outstanding_work) ==
            execution::outstanding_work.tracked);
      CHECK(asio::query(counts, execution::blocking) == execution::blocking.never);
      const asio::any_io_executor any = asio::prefer(asio::any_io_executor(ex),
                                                     execution::outstanding_work.tracked,
                                                     execution::relationship.continuation);
      CHECK(&asio::query(any, execution::context) == &vigil::io::io_context());
    });
    CHECK_THROWS_AS(vigil::io::executor(), vigil::wrong_place);
    in_virtual([] { CHECK_THROWS_AS(vigil::io::executor(), vigil::wrong_place); });
  }

  TEST_CASE("handlers are fibers: they wait for each other") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      auto ping = vigil::make_channel<int>();
      auto pong = vigil::make_channel<int>();
      auto done = vigil::make_channel<int>(1);
      const auto ex = vigil::io::executor();
      asio::post(ex, [=] {
        for (int i = 0; i < 100; ++i)
          pong.send(ping.recv().value() + 1);
      });
      asio::post(ex, [=] {
        vigil::sleep_for(1ms);
        for (int i = 0; i < 100; ++i) {
          ping.send(i);
          REQUIRE(pong.recv() == i + 1);
        }
        done.send(1);
      });
      CHECK(done.recv() == 1);
    });
  }

  TEST_CASE("posted in order, started in order; a dispatch from within runs at once") {
    in_runtime({.workers = {1}}, [] {
      const auto ex = vigil::io::executor();
      auto done = vigil::make_channel<int>(1);
      std::vector<int> order;
      asio::dispatch(ex, [&, ex] {
        order.push_back(1);
        asio::dispatch(ex, [&] { order.push_back(2); });
        asio::post(ex, [&] { order.push_back(4); });
        asio::post(ex, [&, done] {
          order.push_back(5);
          done.send(1);
        });
        order.push_back(3);
      });
      CHECK(order.empty());  // this fiber runs no handler
      done.recv();
      CHECK(order == std::vector{1, 2, 3, 4, 5});
    });
  }

  TEST_CASE("any number of threads hand over to it") {
    in_runtime({.workers = {1, 2}}, [](vigil::runtime& rt) {
      const auto ex = vigil::io::executor();
      const auto more_to_come = rt.make_work_guard();
      const int all = rounds(2000);
      auto came = vigil::make_channel<int>();
      std::vector<std::thread> threads;
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
          for (int k = 0; k < all; ++k)
            asio::post(ex, [came, k] { came.send(k); });
        });
      }
      for (int k = 0; k < 2 * all; ++k)
        REQUIRE(came.recv().has_value());
      for (auto& t : threads)
        t.join();
    });
  }

  TEST_CASE("bind_executor puts a handler of io_context on a fiber") {
    in_runtime({.workers = {1, 2}}, [] {
      asio::steady_timer t(vigil::io::io_context(), 1ms);
      auto done = vigil::make_channel<std::uint64_t>();
      t.async_wait(asio::bind_executor(vigil::io::executor(), [done](error_code error) {
        REQUIRE(!error);
        vigil::sleep_for(1ms);
        done.send(vigil::this_fiber::id());
      }));
      CHECK(done.recv().value() != 0);
    });
  }

  // Asio: I/O starves fibers, fibers starve I/O.
  TEST_CASE("a handler's I/O does not wait behind the computing fiber that began it") {
    in_runtime({.workers = {2}}, [] {
      for (int i = 0; i < rounds(20); ++i) {
        socket_pair s(vigil::io::io_context());
        vigil::sleep_for(2ms);  // makes the worker that was in the io_context come out
        std::atomic<bool> read{false};
        char byte = 0;
        s.near.async_read_some(
            asio::buffer(&byte, 1),
            asio::bind_executor(vigil::io::executor(),
                                [&](error_code, std::size_t) { read.store(true); }));
        const late_writer writer(s.far);
        while (!read.load()) {  // never gives up its worker
        }
      }
    });
  }

  TEST_CASE("an exception that leaves a handler goes to on_unhandled") {
    static std::atomic<int> unhandled{0};
    unhandled.store(0);
    vigil::options o;
    o.on_unhandled = [](std::exception_ptr) { unhandled.fetch_add(1); };
    in_runtime({.workers = {1, 2}, .settings = o}, [] {
      asio::post(vigil::io::executor(), [] { throw std::runtime_error("from a handler"); });
      while (unhandled.load() == 0)
        vigil::sleep_for(100us);
    });
  }
}

TEST_SUITE("fiber_executor: coroutines") {
  TEST_CASE("a fiber waits for a coroutine and gets its value or its exception") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const auto ex = vigil::io::executor();
      CHECK(asio::co_spawn(ex, after_a_while(7), use_fiber) == 7);
      const auto throws = []() -> asio::awaitable<int> {
        static_cast<void>(co_await after_a_while(1));
        throw std::runtime_error("from a coroutine");
      };
      CHECK_THROWS_AS(asio::co_spawn(ex, throws(), use_fiber), std::runtime_error);
    });
  }

  TEST_CASE("coroutine and fiber talk over channels") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      auto in = vigil::make_channel<int>();
      auto out = vigil::make_channel<int>();
      asio::co_spawn(vigil::io::executor(), doubles(in, out), asio::detached);
      for (int i = 0; i < rounds(100); ++i) {
        in.send(i);
        REQUIRE(out.recv() == 2 * i);
      }
      in.close();
      CHECK(out.recv() == std::nullopt);
    });
  }

  // Asio: I/O starves fibers, fibers starve I/O.
  TEST_CASE("its I/O does not wait behind a computing fiber while a worker is idle") {
    in_runtime({.workers = {2}}, [] {
      for (int i = 0; i < rounds(20); ++i) {
        socket_pair s(vigil::io::io_context());
        std::atomic<bool> begun{false};
        std::atomic<bool> read{false};
        const auto over = vigil::make_channel<void>();
        asio::co_spawn(
            vigil::io::executor(),
            [&]() -> asio::awaitable<void> {
              char byte = 0;
              begun.store(true);
              co_await asio::async_read(s.near, asio::buffer(&byte, 1), use_awaitable);
              read.store(true);
            },
            [over](std::exception_ptr) { over.close(); });
        while (!begun.load())
          vigil::sleep_for(100us);
        const late_writer writer(s.far);
        while (!read.load()) {  // never gives up its worker
        }
        over.recv();
      }
    });
  }

  TEST_CASE("a plain thread gets a future") {
    in_runtime({.workers = {1, 2}}, [] {
      std::future<int> f =
          asio::co_spawn(vigil::io::executor(), after_a_while(7), asio::use_future);
      CHECK(vigil::blocking([&] { return f.get(); }) == 7);
    });
  }

  TEST_CASE("sockets on it: a coroutine at one end, a fiber at the other") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto ex = vigil::io::executor();
      asio::basic_stream_socket<asio::local::stream_protocol, fiber_executor> near(ex);
      unix_socket far(ex);
      asio::local::connect_pair(near, far);
      const auto over = vigil::make_channel<void>();
      asio::co_spawn(
          ex,
          [far = std::move(far)]() mutable -> asio::awaitable<void> {
            char byte = 0;
            for (;;) {
              const auto [error, n] = co_await asio::async_read(
                  far, asio::buffer(&byte, 1), asio::as_tuple(use_awaitable));
              if (error) co_return;
              co_await asio::async_write(far, asio::buffer(&byte, n), use_awaitable);
            }
          },
          [over](std::exception_ptr error) {
            CHECK(error == nullptr);
            over.close();
          });
      for (int i = 0; i < rounds(100); ++i) {
        const char sent = static_cast<char>(i);
        char got = 0;
        near.async_write_some(asio::buffer(&sent, 1), use_fiber);
        near.async_read_some(asio::buffer(&got, 1), use_fiber.within(1h));
        REQUIRE(got == sent);
      }
      CHECK(error_of([&] {
              char byte = 0;
              near.async_read_some(asio::buffer(&byte, 1), use_fiber.within(1ms));
            }) == asio::error::timed_out);
      near.close();
      over.recv();  // a handler left in the queue would be dropped, and stay pending
    });
  }
}

TEST_SUITE("fiber_executor: strands") {
  TEST_CASE("handlers of a strand never meet") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const auto strand = asio::make_strand(vigil::io::executor());
      int handled = 0;  // written by the strand only
      const int all = rounds(1000);
      auto done = vigil::make_channel<int>(4);
      vigil::group posters;
      for (int i = 0; i < 4; ++i) {
        posters.go([&] {
          for (int k = 0; k < all; ++k) {
            asio::post(strand, [&, done] {
              if (++handled == 4 * all) static_cast<void>(done.try_send(1));
            });
            if (k % 16 == 0) vigil::this_fiber::yield();
          }
        });
      }
      posters.wait();
      done.recv();
      CHECK(handled == 4 * all);
    });
  }

  TEST_CASE("child: waits in a strand" * doctest::skip()) {
    vigil::run([] {
      asio::post(asio::make_strand(vigil::io::executor()), [] { vigil::sleep_for(1ms); });
      vigil::sleep_for(1h);
    });
  }

  TEST_CASE("a wait in one ends the program with a message") {
    const child_result r = run_child("child: waits in a strand");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("no_park"));
  }
}

TEST_SUITE("fiber_executor: the end") {
  TEST_CASE("a coroutine holds a run that ends when all is done, and is not a deadlock") {
    for (const unsigned workers : {1U, 2U}) {
      vigil::options o;
      o.workers = workers;
      o.exit = vigil::exit_when::all_done;
      o.deadlock = vigil::on_deadlock::fatal;
      auto in = vigil::make_channel<int>(1);
      auto out = vigil::make_channel<int>(1);
      vigil::run(o, [&] {
        asio::co_spawn(vigil::io::executor(), doubles(in, out), asio::detached);
        asio::post(vigil::io::executor(), [in] {
          in.send(21);
          in.close();
        });
      });
      CHECK(out.recv() == 42);
    }
  }

  TEST_CASE("a handler queued when the run ends never starts, and is destroyed") {
    for (const unsigned workers : {1U, 2U}) {
      auto alive = std::make_shared<int>(0);
      std::atomic<int> stopped{0};
      {
        vigil::options o;
        o.workers = workers;
        vigil::runtime rt(o);
        rt.run([&] {
          const auto ex = vigil::io::executor();
          // Waits for a timer of Asio's.
          asio::co_spawn(
              ex,
              [alive]() -> asio::awaitable<void> {
                asio::steady_timer t(co_await asio::this_coro::executor, 1h);
                co_await t.async_wait(use_awaitable);
              },
              asio::detached);
          // Waits as a fiber, so it is unwound.
          auto here = vigil::make_channel<int>();
          auto never = vigil::make_channel<int>();
          asio::co_spawn(
              ex,
              [alive, here, never, &stopped]() -> asio::awaitable<void> {
                try {
                  here.send(1);
                  never.recv();
                } catch (const vigil::stopped&) {
                  stopped.fetch_add(1);
                  throw;
                }
                co_return;
              },
              asio::detached);
          here.recv();
          for (int i = 0; i < 10; ++i)
            asio::post(ex, [alive] {});
        });
        CHECK(stopped.load() == 1);
      }
      CHECK(alive.use_count() == 1);
    }
  }

  TEST_CASE("it outlives its runtime, and handlers posted to it then are destroyed") {
    std::optional<fiber_executor> kept;
    std::optional<asio::any_io_executor> counted;
    vigil::run([&] {
      kept = vigil::io::executor();
      counted = asio::prefer(asio::any_io_executor(*kept), execution::outstanding_work.tracked);
    });
    auto alive = std::make_shared<int>(0);
    bool ran = false;
    asio::post(*kept, [alive, &ran] { ran = true; });
    counted->execute([alive, &ran] { ran = true; });
    CHECK(alive.use_count() == 1);
    CHECK(!ran);
    CHECK(*kept == *kept);
    counted.reset();
  }
}
