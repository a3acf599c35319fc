// io::pending: an operation that keeps its result while other cases of a select win.
#include "io/pending_test.hpp"

#include <vigil/io/memory_stream.hpp>

#include <tuple>

#include <boost/asio/strand.hpp>

using namespace vigil::io_testing;

TEST_SUITE("pending") {
  TEST_CASE("a result that is there when it is selected on is taken, once") {
    in_runtime({}, [] {
      by_hand<int> op;
      pending<int> p(op.begin());
      CHECK_FALSE(p.is_ready());
      op.complete({}, 7);
      CHECK(p.is_ready());
      int got = 0;
      CHECK(vigil::select(on_result(p, [&](int n) { got = n; }), vigil::otherwise()) == 0);
      CHECK(got == 7);
      CHECK_FALSE(p.is_ready());
      CHECK(vigil::select(on_result(p, [&](int) { got = 0; }), vigil::otherwise()) == 1);
      CHECK(vigil::select(on_result(p), vigil::on_timeout(1ms)) == 1);
      p.wait();
      CHECK_THROWS_AS(p.get(), std::logic_error);
      CHECK(got == 7);
    });
  }

  TEST_CASE("a result that comes later ends the select that waits for it") {
    in_runtime({}, [] {
      by_hand<int, std::string> op;
      pending<std::tuple<int, std::string>> p(op.begin());
      auto completes = vigil::spawn([&] {
        vigil::sleep_for(1ms);
        op.complete({}, 7, "seven");
      });
      std::string got;
      auto never = vigil::make_channel<int>();
      CHECK(vigil::select(vigil::on_recv(never),
                          on_result(p, [&](int n, std::string s) { got = s + std::to_string(n); }),
                          vigil::on_timeout(1h)) == 1);
      CHECK(got == "seven7");
      completes.join();
    });
  }

  TEST_CASE("what another case has won leaves the operation open, and its result is kept") {
    in_virtual([] {
      auto [client, server] = vigil::io::memory_pipe();
      std::string bytes(8, '.');
      pending<std::size_t> p(read_all_of(server, asio::buffer(bytes)));
      auto ch = vigil::make_channel<int>(4);
      ch.send(1);
      int taken = 0;
      const auto choose = [&] {
        return vigil::select(on_result(p, [&](std::size_t n) { taken += static_cast<int>(n); }),
                             vigil::on_recv(ch),
                             vigil::on_timeout(1s));
      };
      CHECK(choose() == 1);
      CHECK(choose() == 2);
      CHECK(bytes == "........");
      client.async_write_some(asio::buffer("abcd", 4), vigil::io::use_fiber);
      CHECK(choose() == 2);
      auto [context, cancel] = vigil::with_cancel(vigil::background());
      cancel();
      CHECK(vigil::select(on_result(p), vigil::on_done(context)) == 1);
      client.async_write_some(asio::buffer("efgh", 4), vigil::io::use_fiber);
      vigil::sleep_for(1ms);
      CHECK(p.is_ready());
      ch.send(1);
      ch.send(2);
      ch.send(3);
      int rounds = 0;
      while (taken == 0) {
        choose();
        ++rounds;
      }
      CHECK(rounds <= 4);
      CHECK(taken == 8);
      CHECK(bytes == "abcdefgh");
    });
  }

  TEST_CASE("a loop over a case_list takes the result, and the others, once each") {
    in_runtime({}, [] {
      by_hand<int> one;
      by_hand<int> two;
      pending<int> p(one.begin());
      pending<int> q(two.begin());
      auto ch = vigil::make_channel<int>(1);
      vigil::case_list all;
      std::vector<int> got;
      all.add(on_result(p, [&](int n) { got.push_back(n); }));
      all.add(on_result(q, [&](int n) { got.push_back(n); }));
      all.add(vigil::on_recv(ch, [&](std::optional<int> n) { got.push_back(n.value()); }));
      ch.send(1);
      CHECK(vigil::select(all) == 2);
      two.complete({}, 2);
      CHECK(vigil::select(all) == 1);
      auto completes = vigil::spawn([&] { one.complete({}, 3); });
      CHECK(vigil::select(all) == 0);
      completes.join();
      ch.send(4);
      CHECK(vigil::select_ordered(all) == 2);
      CHECK(got == std::vector{1, 2, 3, 4});
    });
  }

  TEST_CASE("an error comes out of select, unless the function takes it") {
    in_runtime({}, [] {
      const error_code reset = asio::error::connection_reset;
      {
        by_hand<int> op;
        pending<int> p(op.begin());
        op.complete(reset, 3);
        bool called = false;
        CHECK(error_of([&] { vigil::select(on_result(p, [&](int) { called = true; })); }) == reset);
        CHECK_FALSE(called);
      }
      {
        by_hand<int> op;
        pending<int> p(op.begin());
        op.complete(reset, 3);
        vigil::select(on_result(p, [&](error_code e, int n) {
          CHECK(e == reset);
          CHECK(n == 3);
        }));
      }
      by_hand<> op;
      pending<void> p(op.begin());
      op.complete(reset);
      CHECK(error_of([&] { p.get(); }) == reset);
      by_hand<int> dropped;
      pending<int> q(dropped.begin());
      dropped.drop();
      error_code e;
      CHECK(q.get(e) == 0);
      CHECK(e == was_aborted);
    });
  }

  TEST_CASE("wait and get have their limits, and the operation goes on after them") {
    in_virtual([] {
      by_hand<std::unique_ptr<int>> op;
      pending<std::unique_ptr<int>> p(op.begin());
      const auto start = vigil::clock::now();
      auto completes = vigil::spawn([&] {
        vigil::sleep_for(10s);
        op.complete({}, std::make_unique<int>(7));
      });
      completes.join();
      CHECK(since(start) == 10s);
      CHECK(p.wait_for(0s));
      CHECK(p.wait_until(start));
      CHECK(*p.get() == 7);
    });
    in_runtime({}, [] {
      by_hand<int> op;
      pending<int> p(op.begin());
      CHECK_FALSE(p.wait_for(0s));
      CHECK_FALSE(p.wait_for(1ms));
      CHECK_FALSE(p.wait_until(vigil::clock::now() + 1ms));
      auto [context, cancel] = vigil::with_timeout(vigil::background(), 1ms);
      CHECK_THROWS_AS(p.wait(context), vigil::cancelled);
      CHECK_THROWS_AS(p.get(context), vigil::cancelled);
      CHECK_THROWS_AS(static_cast<void>(p.wait_for(1h, context)), vigil::cancelled);
      CHECK(op.cancels == 0);
      op.complete({}, 7);
      CHECK(p.get() == 7);
    });
  }

  TEST_CASE("cancel asks the operation to end, and its result says so") {
    in_runtime({}, [] {
      socket_pair s(vigil::io::io_context());
      std::string bytes(8, '.');
      pending<std::size_t> p(read_all_of(s.near, asio::buffer(bytes)));
      p.cancel();
      p.cancel();
      error_code e;
      CHECK(p.get(e) == 0);
      CHECK(e == was_aborted);
      by_hand<int> stubborn;
      stubborn.obeys = false;
      pending<int> q(stubborn.begin());
      q.cancel();
      CHECK(stubborn.cancels == 1);
      CHECK_FALSE(q.is_ready());
      stubborn.complete({}, 7);
      CHECK(q.get() == 7);
    });
  }

  TEST_CASE("the function begins one operation, on a fiber") {
    by_hand<int> op;
    CHECK_THROWS_AS(pending<int>(op.begin()), vigil::wrong_place);
    in_runtime({.workers = {1}}, [] {
      CHECK_THROWS_AS(pending<int>([](auto) {}), std::logic_error);
      by_hand<int> one;
      by_hand<int> two;
      const auto both = [&](auto token) {
        one.begin()(token);
        two.begin()(token);
      };
      CHECK_THROWS_AS(pending<int>{both}, std::logic_error);
      CHECK(one.cancels == 1);
      by_hand<int> other;
      const auto fails = [&](auto token) {
        other.begin()(token);
        throw std::runtime_error("after it has begun");
      };
      CHECK_THROWS_AS(pending<int>{fails}, std::runtime_error);
      CHECK(other.cancels == 1);
    });
  }

  TEST_CASE("operations of each kind: composed, a strand, a timer, a memory stream") {
    in_runtime({}, [] {
      auto& c = vigil::io::io_context();
      socket_pair s(c);
      std::string bytes(300'000, '.');
      const std::string sent(300'000, 'x');
      auto strand = asio::make_strand(c);
      pending<std::size_t> r([&](auto token) {
        return asio::async_read(s.near, asio::buffer(bytes), asio::bind_executor(strand, token));
      });
      pending<std::size_t> w(
          [&](auto token) { return asio::async_write(s.far, asio::buffer(sent), token); });
      asio::steady_timer t(c, 1ms);
      pending<void> rings([&](auto token) { return t.async_wait(token); });
      int taken = 0;
      while (taken != 3) {
        vigil::select(on_result(r,
                                [&](std::size_t n) {
                                  CHECK(n == sent.size());
                                  ++taken;
                                }),
                      on_result(w, [&] { ++taken; }),
                      on_result(rings, [&] { ++taken; }));
      }
      CHECK(bytes == sent);
    });
  }

  TEST_CASE("cancelling a composed operation ends it between its steps") {
    in_runtime({}, [] {
      asio::io_context own;
      const run_by_threads runner(own, 2);
      for (int i = 0; i < rounds(200); ++i) {
        socket_pair s(own);
        std::string bytes(1000, '.');
        pending<std::size_t> r(read_all_of(s.near, asio::buffer(bytes)));
        asio::write(s.far, asio::buffer("x", 1));
        r.cancel();
        error_code e;
        CHECK(r.get(e) <= 1);
        CHECK(e == was_aborted);
      }
    });
  }

  TEST_CASE("results that plain threads complete beside other events are all taken") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      asio::io_context own;
      const run_by_threads runner(own, 2);
      auto ch = vigil::make_channel<int>();
      std::atomic<bool> over{false};
      auto sends = vigil::spawn([&] {
        for (int i = 0; !over; ++i)
          ch.send(i);
        ch.close();
      });
      const auto add = [&](int n) {
        return [&own, n](auto token) {
          return asio::async_initiate<decltype(token), void(error_code, int)>(
              [&own, n](auto handler) {
                asio::post(
                    own, [h = std::move(handler), n]() mutable { std::move(h)(error_code(), n); });
              },
              token);
        };
      };
      std::optional<pending<int>> p;
      for (int i = 0; i < rounds(2000); ++i) {
        p.emplace(add(i));
        int got = -1;
        while (got == -1)
          vigil::select(on_result(*p, [&](int n) { got = n; }), vigil::on_recv(ch));
        REQUIRE(got == i);
      }
      over = true;
      while (ch.recv()) {
      }
      sends.join();
    });
  }

  TEST_CASE("many fibers, each with an operation that is cut, cancelled or completed") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      asio::io_context own;
      const run_by_threads runner(own, 2);
      std::vector<vigil::fiber<void>> fibers;
      for (int f = 0; f < 8; ++f) {
        fibers.push_back(vigil::spawn([&own, f] {
          for (int i = 0; i < rounds(200); ++i) {
            asio::steady_timer t(own, std::chrono::microseconds((i * 7 + f) % 50));
            pending<void> p([&](auto token) { return t.async_wait(token); });
            switch (i % 4) {
              case 0:
                p.get();
                break;
              case 1:
                static_cast<void>(p.wait_for(20us));
                break;
              case 2:
                vigil::select(on_result(p, [](error_code) {}), vigil::on_timeout(20us));
                break;
              default:
                p.cancel();
            }
          }
        }));
      }
      for (auto& f : fibers)
        f.join();
    });
  }
}
