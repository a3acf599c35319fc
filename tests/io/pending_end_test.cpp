// The ends of an io::pending: destroyed, stopped, lost, used in the wrong place or twice.
#include "io/pending_test.hpp"
#include "support/child.hpp"

using namespace vigil::io_testing;

TEST_SUITE("pending") {
  TEST_CASE("the destructor cancels, and waits until the handler has run") {
    in_runtime({}, [] {
      socket_pair s(vigil::io::io_context());
      {
        std::string bytes(8, '.');
        const pending<std::size_t> p(read_all_of(s.near, asio::buffer(bytes)));
      }
      std::string bytes(1, '.');
      asio::write(s.far, asio::buffer("x", 1));
      CHECK(s.near.read_some(asio::buffer(bytes)) == 1);  // nothing reads into the buffer above

      by_hand<int> late;
      late.obeys = false;
      bool is_gone = false;
      auto owner = vigil::spawn([&] {
        {
          pending<int> p(late.begin());
          p.on_lost([](int) {});
        }
        is_gone = true;
      });
      while (late.cancels == 0)
        vigil::this_fiber::yield();
      owner.request_stop();
      for (int i = 0; i < 10; ++i)
        vigil::this_fiber::yield();
      CHECK_FALSE(is_gone);
      late.complete({}, 7);
      owner.join();
      CHECK(is_gone);
    });
  }

  TEST_CASE("a stop and a shutdown end the wait, and then the operation") {
    for (const bool stops : {true, false}) {
      in_runtime({}, [stops] {
        auto s = std::make_shared<socket_pair>(vigil::io::io_context());
        auto waits = vigil::spawn([s] {
          std::string bytes(8, '.');
          pending<std::size_t> p(read_all_of(s->near, asio::buffer(bytes)));
          vigil::select(on_result(p));
        });
        vigil::this_fiber::yield();
        if (stops) {
          waits.request_stop();
          CHECK_THROWS_AS(waits.join(), vigil::cancelled);
        } else {
          waits.detach();
        }
      });
    }
  }

  TEST_CASE("a result that nobody took goes to on_lost, to on_unhandled, or is reported") {
    static std::atomic<int> reports{0};
    vigil::options o;
    o.on_unhandled = [](std::exception_ptr) { ++reports; };
    in_runtime({.workers = {1}, .settings = o}, [&] {
      reports = 0;
      int lost = 0;
      {
        by_hand<int> op;
        pending<int> p(op.begin());
        p.on_lost([&](int n) { lost = n; });
        op.complete({}, 7);
      }
      CHECK(lost == 7);
      {
        by_hand<int> op;
        pending<int> p(op.begin());
        p.on_lost([&](int) { lost = 0; });
        op.complete({}, 7);
        CHECK(p.get() == 7);
      }
      {
        by_hand<int> op;
        pending<int> p(op.begin());
        p.on_lost([&](int) { lost = 0; });
      }
      {
        by_hand<> op;
        pending<void> p(op.begin());
        op.complete({});
      }
      CHECK(lost == 7);
      CHECK(reports == 0);
      {
        by_hand<int> op;
        pending<int> p(op.begin());
        op.complete({}, 7);
      }
      CHECK(reports == 1);
    });
  }

  TEST_CASE("child: loses a result" * doctest::skip()) {
    vigil::run([] {
      by_hand<int> op;
      pending<int> p(op.begin());
      op.complete({}, 7);
    });
  }

  TEST_CASE("without on_unhandled a line says that a result is lost") {
    const child_result r = run_child("child: loses a result");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK(r.says("the result of a successful operation is lost"));
  }

  TEST_CASE("a select that waits for an operation is outside work") {
    vigil::options fatal;
    fatal.deadlock = vigil::on_deadlock::fatal;
    in_runtime({.workers = {1, 2}, .settings = fatal}, [] {
      asio::steady_timer t(vigil::io::io_context(), 3ms);
      pending<void> p([&](auto token) { return t.async_wait(token); });
      vigil::select(on_result(p));
      CHECK(!vigil::detail::current_scheduler()->outside.any());
    });
    in_virtual([] {
      asio::io_context real;
      const run_by_threads runner(real, 1);
      asio::steady_timer t(real, 3ms);
      pending<void> p([&](auto token) { return t.async_wait(token); });
      auto sleeper = vigil::spawn([] { vigil::sleep_for(1h); });
      const auto start = vigil::clock::now();
      vigil::select(on_result(p));
      CHECK(since(start) == 0s);
    });
  }

  TEST_CASE("two waits at once are an error") {
    in_runtime({}, [] {
      by_hand<int> op;
      pending<int> p(op.begin());
      CHECK_THROWS_AS(vigil::select(on_result(p), on_result(p)), vigil::wrong_place);
      auto started = vigil::make_channel<int>(1);
      auto first = vigil::spawn([&] {
        started.send(1);
        int got = 0;
        vigil::select(on_result(p, [&](int n) { got = n; }));
        return got;
      });
      started.recv();
      bool refused = false;
      while (!refused) {
        try {
          vigil::select(on_result(p), vigil::on_timeout(1us));
        } catch (const vigil::wrong_place&) {
          refused = true;
        }
      }
      CHECK_THROWS_AS(p.wait(), vigil::wrong_place);
      CHECK_THROWS_AS(p.get(), vigil::wrong_place);
      op.complete({}, 7);
      CHECK(first.join() == 7);
    });
  }

  TEST_CASE("a pending that outlives its run can be looked at, but not waited for") {
    asio::io_context own;
    std::optional<pending<int>> p;
    std::optional<pending<int>> q;
    by_hand<int> op;
    by_hand<int> done;
    in_runtime({.workers = {1}}, [&] {
      p.emplace(op.begin());
      q.emplace(done.begin());
      done.complete({}, 7);
    });
    CHECK_THROWS_AS(p->wait(), vigil::wrong_place);
    CHECK_THROWS_AS(vigil::select(on_result(*p)), vigil::wrong_place);
    vigil::run([&] {
      by_hand<int> here;
      CHECK_THROWS_AS(vigil::select(on_result(*p), vigil::on_timeout(1ms)), vigil::wrong_place);
    });
    CHECK(q->get() == 7);
    op.complete({}, 8);
    CHECK(p->get() == 8);
  }

  TEST_CASE("child: destroys an open pending after its run" * doctest::skip()) {
    by_hand<int> op;
    std::optional<pending<int>> p;
    in_runtime({.workers = {1}}, [&] { p.emplace(op.begin()); });
    p.reset();
  }

  TEST_CASE("child: destroys a pending that is waited for" * doctest::skip()) {
    in_runtime({.workers = {1}}, [] {
      by_hand<int> op;
      std::optional<pending<int>> p;
      p.emplace(op.begin());
      auto waits = vigil::spawn([&] { vigil::select(on_result(*p)); });
      vigil::this_fiber::yield();
      vigil::sleep_for(1ms);
      p.reset();
      waits.join();
    });
  }

  TEST_CASE("child: destroys an open pending under no_park" * doctest::skip()) {
    in_runtime({.workers = {1}}, [] {
      by_hand<int> op;
      std::optional<pending<int>> p;
      p.emplace(op.begin());
      const vigil::this_fiber::no_park stays;
      p.reset();
    });
  }

  TEST_CASE("child: destroys an open pending in its own handler" * doctest::skip()) {
    in_runtime({.workers = {1}}, [] {
      asio::io_context own;
      asio::steady_timer t(own, 1h);
      std::optional<pending<void>> p;
      p.emplace([&](auto token) { return t.async_wait(token); });
      asio::post(own, [&] { p.reset(); });
      own.run();
    });
  }

  TEST_CASE("destroying it in the wrong place ends the program") {
    child_result r = run_child("child: destroys an open pending after its run");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK(r.says("destroyed outside the run in which it began"));
    r = run_child("child: destroys a pending that is waited for");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK(r.says("destroyed while another fiber waits for it"));
    r = run_child("child: destroys an open pending under no_park");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK(r.says("under this_fiber::no_park"));
    r = run_child("child: destroys an open pending in its own handler");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK(r.says("destroyed inside a handler of an io_context that this very fiber runs"));
  }

  TEST_CASE("a wait in a handler of its io_context, which this fiber runs, is an error") {
    in_runtime({.workers = {1}}, [] {
      for (const bool bound : {false, true}) {
        asio::io_context own;
        asio::steady_timer t(own, 1h);
        pending<void> p([&](auto token) {
          if (bound) {
            t.async_wait(asio::bind_executor(own, token));
          } else {
            t.async_wait(token);
          }
        });
        bool done = false;
        asio::post(own, [&] {
          CHECK_THROWS_AS(p.wait(), vigil::wrong_place);
          CHECK_THROWS_AS(static_cast<void>(p.wait_for(1ms)), vigil::wrong_place);
          CHECK_THROWS_AS(p.get(), vigil::wrong_place);
          CHECK_THROWS_AS(vigil::select(on_result(p), vigil::on_timeout(1ms)), vigil::wrong_place);
          CHECK(vigil::select(on_result(p), vigil::otherwise()) == 1);
          done = true;
        });
        while (!done)
          own.poll();
        p.cancel();
        own.restart();
        while (!p.is_ready())
          own.poll();
      }
    });
  }

  TEST_CASE("a select that would not wait needs no fiber") {
    in_runtime({.workers = {1}}, [] {
      by_hand<int> op;
      pending<int> p(op.begin());
      std::size_t before = 0;
      std::size_t after = 1;
      std::thread([&] {
        before = vigil::select(on_result(p), vigil::otherwise());
        op.complete({}, 7);
        after = vigil::select_ordered(on_result(p), vigil::on_timeout(0s));
      }).join();
      CHECK(before == 1);
      CHECK(after == 0);
      by_hand<int> other;
      pending<int> q(other.begin());
      const vigil::this_fiber::no_park stays;
      CHECK(vigil::select(on_result(q), vigil::otherwise()) == 1);
      other.complete({}, 7);
      CHECK(q.get() == 7);
    });
  }

  TEST_CASE("a result that a select is about to take is not taken by get") {
    in_runtime({.workers = {1}}, [] {
      by_hand<std::unique_ptr<int>> op;
      pending<std::unique_ptr<int>> p(op.begin());
      auto never = vigil::make_channel<int>();
      auto selects = vigil::spawn([&] {
        int got = 0;
        vigil::select(on_result(p, [&](std::unique_ptr<int> n) { got = n ? *n : -1; }),
                      vigil::on_recv(never));
        return got;
      });
      vigil::sleep_for(1ms);
      op.complete({}, std::make_unique<int>(7));
      CHECK_THROWS_AS(p.wait(), vigil::wrong_place);
      CHECK_THROWS_AS(static_cast<void>(p.get()), vigil::wrong_place);
      CHECK(selects.join() == 7);
    });
  }

  TEST_CASE("a result is reported if the function has thrown, and an exception of a move") {
    static std::atomic<int> reports{0};
    static std::string last;
    vigil::options o;
    o.on_unhandled = [](std::exception_ptr error) {
      ++reports;
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& e) {
        last = e.what();
      }
    };
    in_runtime({.workers = {1}, .settings = o}, [&] {
      reports = 0;
      by_hand<int> op;
      const auto fails = [&](auto token) {
        op.begin()(token);
        op.complete({}, 7);
        throw std::logic_error("after its end");
      };
      CHECK_THROWS_AS(pending<int>{fails}, std::logic_error);
      CHECK(reports == 1);
      CHECK(last.find("is lost") != std::string::npos);
      {
        by_hand<throws_when_moved> other;
        const pending<throws_when_moved> p(other.begin());
        other.complete({}, throws_when_moved(3));
      }
      CHECK(reports == 2);
      CHECK(last == "moved");
    });
  }
}
