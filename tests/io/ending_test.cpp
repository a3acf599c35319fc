// How a wait for an operation ends before the operation would: by a deadline, a context,
// a shutdown, an io_context that goes away.
#include "io/io_test.hpp"
#include "support/child.hpp"

#include <vigil/timeout_list.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>

#include <boost/asio/compose.hpp>
#include <boost/asio/connect_pipe.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/readable_pipe.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/writable_pipe.hpp>

using namespace vigil::io_testing;

namespace {

// Reads once; for the various kinds of streams.
template <class Stream>
error_code read_error(Stream& s, const vigil::io::fiber_token& token) {
  char byte = 0;
  return error_of([&] { s.async_read_some(asio::buffer(&byte, 1), token); });
}

struct plain_tcp_pair {
  explicit plain_tcp_pair(asio::io_context& c) : near(c), far(c) {
    asio::ip::tcp::acceptor a(c, {asio::ip::address_v4::loopback(), 0});
    near.connect(a.local_endpoint());
    a.accept(far);
  }

  asio::ip::tcp::socket near;
  asio::ip::tcp::socket far;
};

// An operation of any number of steps, each a wait of its own, that ignores the result of
// the step before.
template <class Token>
auto stubborn(unix_socket& s, int steps, Token&& token) {
  return asio::async_compose<Token, void(error_code, int)>(
      [&s, steps, done = 0](auto& self, error_code = {}, std::size_t = 0) mutable {
        if (done++ == steps) {
          self.complete({}, steps);
          return;
        }
        s.async_wait(unix_socket::wait_read, std::move(self));
      },
      token,
      s);
}

}  // namespace

TEST_SUITE("use_fiber: deadlines") {
  // Asio: no timeouts; wait rounded to ms.
  TEST_CASE("a read without data ends at its deadline, not before, over each transport") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      socket_pair u(c);
      plain_tcp_pair t(c);
      asio::readable_pipe r(c);
      asio::writable_pipe w(c);
      asio::connect_pipe(r, w);
      const auto check = [](auto& stream) {
        const auto start = vigil::clock::now();
        CHECK(read_error(stream, use_fiber.within(3ms)) == asio::error::timed_out);
        CHECK(since(start) >= 3ms);
        const auto at = vigil::clock::now() + 2ms;
        CHECK(read_error(stream, use_fiber.until(at)) == asio::error::timed_out);
        CHECK(vigil::clock::now() >= at);
        CHECK(read_error(stream, use_fiber.within(-1s)) == asio::error::timed_out);
        CHECK(read_error(stream, use_fiber.until(vigil::clock::time_point::min())) ==
              asio::error::timed_out);
      };
      check(u.near);
      check(t.near);
      check(r);
    });
  }

  // Asio: completion and deadline race.
  TEST_CASE("data that has arrived counts, though the deadline has passed") {
    in_runtime({.workers = {1, 2}}, [] {
      socket_pair s(vigil::io::io_context());
      char byte = 0;
      for (int i = 0; i < rounds(200); ++i) {
        asio::write(s.far, asio::buffer("x", 1));
        CHECK(s.near.async_read_some(asio::buffer(&byte, 1), use_fiber.within(0s)) == 1);
      }
    });
  }

  // Go: zero time, now, overflow; moved before the waiter ran.
  TEST_CASE("no deadline at the end of the clock, and the last one asked for counts") {
    in_runtime({.workers = {1}}, [] {
      socket_pair s(vigil::io::io_context());
      auto writer = vigil::spawn([&] {
        vigil::sleep_for(2ms);
        asio::write(s.far, asio::buffer("x", 1));
      });
      CHECK(!read_error(s.near, use_fiber.until(vigil::clock::time_point::max())));
      writer.join();
      CHECK(read_error(s.near, use_fiber.within(1h).within(1ms)) == asio::error::timed_out);
    });
  }

  TEST_CASE("an operation of many steps that ignores requests is asked again after each step") {
    in_runtime({.workers = {1, 2}}, [] {
      socket_pair s(vigil::io::io_context());
      CHECK(stubborn(s.near, 5, use_fiber.within(1ms)) == 5);
    });
  }

  // Asio: completion and deadline race. Go: the buffer is the caller's after a
  // timeout.
  TEST_CASE("deadline and completion at the same instant: a byte is read once or later") {
    for (const unsigned variant : {1U, 2U, 3U, 4U}) {
      const bool threads = variant > 2;
      asio::io_context own;  // one for each: runners now and then leave it stopped
      vigil::options o;
      vigil::io::attach(o, own);
      in_runtime({.workers = {1 + variant % 2}, .settings = o}, [&] {
        const auto runners = threads ? std::make_unique<run_by_threads>(own, 2) : nullptr;
        socket_pair s(own);
        int got = 0;
        int sent = 0;
        const int all = std::getenv("VIGIL_LONG") != nullptr ? 100'000 : rounds(4000);
        auto writer = vigil::spawn([&] {
          seeded dice(7);
          for (; sent < all; ++sent) {
            vigil::sleep_for(std::chrono::nanoseconds(dice.below(40'000)));
            s.far.async_write_some(asio::buffer("x", 1), use_fiber);
          }
        });
        seeded dice(8);
        while (got < all) {
          char byte = 0;
          const auto [code, n] = s.near.async_read_some(
              asio::buffer(&byte, 1),
              asio::as_tuple(use_fiber.within(std::chrono::nanoseconds(dice.below(40'000)))));
          if (code) {
            REQUIRE(code == asio::error::timed_out);
            REQUIRE(byte == 0);
          } else {
            REQUIRE(byte == 'x');
            got += static_cast<int>(n);
          }
        }
        writer.join();
        CHECK(got == all);
      });
    }
  }

  // Asio: several threads on one io_context (fiber#138, #101).
  TEST_CASE("steps on threads of the caller's meet a deadline from a fiber") {
    asio::io_context own;
    vigil::options o;
    vigil::io::attach(o, own);
    in_runtime({.workers = {2}, .settings = o}, [&] {
      auto runners = std::make_unique<run_by_threads>(own, 2);
      {
        socket_pair s(own);
        std::atomic<bool> over{false};
        auto writer = vigil::spawn([&] {
          while (!over.load()) {
            const auto [code, n] =
                s.far.async_write_some(asio::buffer("x", 1), asio::as_tuple(use_fiber));
            // The other end is closed below, even under a write that waits for room.
            const bool is_closed =
                code == asio::error::broken_pipe || code == asio::error::connection_reset;
            REQUIRE((!code || (over.load() && is_closed)));
            REQUIRE(n == (code ? 0 : 1));
            vigil::this_fiber::yield();
          }
        });
        char bytes[64];
        for (int i = 0; i < rounds(1000); ++i) {
          const auto [code, n] =
              asio::async_read(s.near, asio::buffer(bytes), asio::as_tuple(use_fiber.within(50us)));
          REQUIRE((!code || code == asio::error::timed_out));
          REQUIRE((n == sizeof bytes || code));
        }
        over.store(true);
        s.near.close();
        CHECK_NOTHROW(writer.join());
      }
      runners.reset();
    });
  }
}

TEST_SUITE("use_fiber: contexts, stops and ends") {
  TEST_CASE("a context that is done ends the wait with `cancelled`, whatever the wrapper") {
    in_runtime({.workers = {1, 2}}, [] {
      socket_pair s(vigil::io::io_context());
      char byte = 0;
      const auto room = asio::buffer(&byte, 1);
      auto [ctx, cancel] = vigil::with_cancel(vigil::background());
      auto canceller = vigil::after_func(1ms, [cancel = cancel] { cancel(); });
      CHECK_THROWS_AS(s.near.async_read_some(room, use_fiber.under(ctx)), vigil::cancelled);
      CHECK_THROWS_AS(s.near.async_read_some(room, asio::as_tuple(use_fiber.under(ctx))),
                      vigil::cancelled);
      asio::write(s.far, asio::buffer("x", 1));
      CHECK(s.near.async_read_some(room, use_fiber.under(ctx)) == 1);
      CHECK_THROWS_AS(static_cast<void>(use_fiber.under(vigil::context())), std::invalid_argument);
      const auto short_one = vigil::with_timeout(vigil::background(), 1ms).ctx;
      try {
        s.near.async_read_some(room, use_fiber.under(short_one).within(1h));
        FAIL("returned");
      } catch (const vigil::cancelled& e) {
        CHECK(e.code() == std::errc::timed_out);
      }
    });
  }

  // Asio: clean shutdown (fiber#267), cancelling (#174).
  TEST_CASE("a stop ends the wait when the operation no longer uses the buffer") {
    in_runtime({.workers = {1, 2}}, [] {
      socket_pair s(vigil::io::io_context());
      std::atomic<bool> was_stopped{false};
      auto reader = vigil::spawn([&] {
        char byte = 0;
        try {
          s.near.async_read_some(asio::buffer(&byte, 1), use_fiber);
        } catch (const vigil::stopped&) {
          was_stopped.store(true);
          // A call that can complete still does.
          asio::write(s.far, asio::buffer("x", 1));
          CHECK(s.near.async_read_some(asio::buffer(&byte, 1), use_fiber) == 1);
          throw;
        }
      });
      vigil::sleep_for(1ms);
      reader.request_stop();
      CHECK_THROWS_AS(reader.join(), vigil::cancelled);
      CHECK(was_stopped.load());
    });
  }

  // Asio: clean shutdown (fiber#267), cancelling (#174).
  TEST_CASE("the end of the run ends the waits of hundreds of fibers") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      for (int i = 0; i < rounds(400); ++i) {
        vigil::go([&c] {
          socket_pair s(c);
          char byte = 0;
          s.near.async_read_some(asio::buffer(&byte, 1), use_fiber);
        });
      }
      vigil::sleep_for(2ms);
    });
  }

  // Asio: peer closes, resets.
  TEST_CASE("a peer that closes or resets is an error, not a hang") {
    in_runtime({.workers = {1, 2}}, [] {
      plain_tcp_pair t(vigil::io::io_context());
      auto closer = vigil::spawn([&] {
        vigil::sleep_for(1ms);
        t.far.close();
      });
      CHECK(read_error(t.near, {}) == asio::error::eof);
      closer.join();
      plain_tcp_pair u(vigil::io::io_context());
      auto resetter = vigil::spawn([&] {
        vigil::sleep_for(1ms);
        u.far.set_option(asio::socket_base::linger(true, 0));
        u.far.close();
      });
      CHECK(read_error(u.near, {}) == asio::error::connection_reset);
      resetter.join();
    });
  }

  // Asio: the io_context dies first: never resumed.
  TEST_CASE("an io_context that is destroyed early is an error, not a hang") {
    in_runtime({.workers = {1}}, [] {
      auto other = std::make_unique<asio::io_context>();
      auto runner = std::make_unique<run_by_threads>(*other, 1);
      std::atomic<int> begun{0};
      std::atomic<int> ended{0};
      const auto waits = [&](auto check) {
        return vigil::spawn([&, check] {
          auto t = std::make_unique<asio::steady_timer>(*other, 1h);
          begun.fetch_add(1);
          check(*t);
          ended.fetch_add(1);
          ::operator delete(t.release());  // its io_context is gone: no destructor
        });
      };
      auto plain = waits([](asio::steady_timer& t) {
        CHECK(error_of([&] { t.async_wait(use_fiber); }) == asio::error::operation_aborted);
      });
      auto tuple = waits([](asio::steady_timer& t) {
        CHECK(std::get<0>(t.async_wait(asio::as_tuple(use_fiber))) ==
              asio::error::operation_aborted);
      });
      auto redirected = waits([](asio::steady_timer& t) {
        error_code code;
        t.async_wait(asio::redirect_error(use_fiber.within(1h), code));
        CHECK(code == asio::error::operation_aborted);
      });
      while (begun.load() != 3)
        vigil::this_fiber::yield();  // on one worker: each waits once it has counted
      runner.reset();
      other.reset();
      plain.join();
      tuple.join();
      redirected.join();
      CHECK(ended.load() == 3);
    });
  }

  // Asio: the io_context dies first: never resumed.
  TEST_CASE("an operation that is dropped before it began is an error") {
    in_runtime({.workers = {1}}, [] {
      CHECK(error_of([] {
              asio::async_initiate<const vigil::io::use_fiber_t, void(error_code)>([](auto) {},
                                                                                   use_fiber);
            }) == asio::error::operation_aborted);
      CHECK(error_of([] {
              asio::async_initiate<const vigil::io::use_fiber_t, void()>([](auto) {}, use_fiber);
            }) == asio::error::operation_aborted);
    });
  }

  // Go: TestNetpollWaiters.
  TEST_CASE("waiting for an operation is outside work") {
    vigil::options fatal;
    fatal.deadlock = vigil::on_deadlock::fatal;
    in_runtime({.workers = {1, 2}, .settings = fatal}, [] {
      asio::steady_timer t(vigil::io::io_context(), 3ms);
      t.async_wait(use_fiber);
      CHECK(!vigil::detail::current_scheduler()->outside.any());
    });
    in_virtual([] {
      asio::io_context real;
      const run_by_threads runner(real, 1);
      asio::steady_timer t(real, 3ms);
      auto sleeper = vigil::spawn([] { vigil::sleep_for(1h); });
      const auto start = vigil::clock::now();
      t.async_wait(use_fiber);
      CHECK(since(start) == 0s);
      CHECK_THROWS_AS(vigil::io::io_context(), vigil::wrong_place);
    });
  }

  TEST_CASE("child: removes an entry in a handler of the only worker" * doctest::skip()) {
    in_runtime({.workers = {1}}, [] {
      vigil::timeout_list l(1ms, [](vigil::timeout_list::entry&) { vigil::sleep_for(1h); });
      vigil::timeout_list::entry e;
      auto& c = vigil::io::io_context();
      l.add(e);
      while (e.is_linked())
        vigil::sleep_for(1ms);
      const auto announced = vigil::runtime::current().make_work_guard();
      asio::post(c, [&] { vigil::timeout_list::remove(e); });
      vigil::sleep_for(1h);
    });
  }

  TEST_CASE("a handler that would wait for an on_expire for ever ends the program") {
    const child_result r = run_child("child: removes an entry in a handler of the only worker");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK(r.says("the only worker's own stack"));
  }

  // Asio: a handler that blocks.
  TEST_CASE("where it cannot wait it throws an error that says so") {
    asio::io_context own;
    asio::steady_timer t(own, 1h);
    CHECK_THROWS_AS(t.async_wait(use_fiber), vigil::wrong_place);
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::io_context();
      std::string said;
      const auto announced = vigil::runtime::current().make_work_guard();
      auto done = vigil::make_channel<int>(1);
      asio::post(c, [&] {
        try {
          asio::steady_timer inner(c, 1h);
          inner.async_wait(use_fiber);
        } catch (const vigil::wrong_place& e) {
          said = e.what();
        }
        static_cast<void>(done.try_send(1));
      });
      CHECK(done.recv() == 1);
      CHECK(said.find("inside a handler") != std::string::npos);
    });
  }

  // Asio: a handler that blocks.
  TEST_CASE("nor can it in a handler of an io_context that its fiber runs itself") {
    in_runtime({.workers = {1}}, [] {
      const auto is_refused = [](asio::io_context& c) {
        std::string said;
        asio::post(c, [&] {
          try {
            asio::steady_timer(c, 1h).async_wait(use_fiber);
          } catch (const vigil::wrong_place& e) {
            said = e.what();
          }
        });
        c.poll();
        return said.find("inside a handler") != std::string::npos;
      };
      asio::io_context own;
      CHECK(is_refused(own));
      CHECK(is_refused(vigil::io::io_context()));
    });
  }

  TEST_CASE("child: sleeps in a handler that its fiber runs" * doctest::skip()) {
    vigil::run([] {
      asio::io_context own;
      asio::post(own, [] { vigil::sleep_for(1ms); });
      const vigil::this_fiber::no_park stays;
      own.run();
    });
  }

  // Asio: a handler that blocks.
  TEST_CASE("other waits there are refused under no_park") {
    const child_result r = run_child("child: sleeps in a handler that its fiber runs");
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("about to wait under this_fiber::no_park"));
  }
}
