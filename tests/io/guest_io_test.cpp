// I/O in a runtime inside a host's loop: a thread waits for it, and the host's descriptor
// becomes readable.
#include "core/guest/host_loop.hpp"
#include "io/io_test.hpp"

#include <vigil/guest.hpp>
#include <vigil/io/co.hpp>
#include <vigil/io/executor.hpp>

#include <atomic>
#include <exception>
#include <memory>
#include <stdexcept>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

using namespace vigil::io_testing;
using vigil::guest_runtime;

namespace {

std::exception_ptr handed_over;

vigil::task<int> answers() {
  co_await vigil::co::sleep_for(1ms);
  co_return 7;
}

asio::awaitable<int> awaits_answer() {
  co_return 1 + co_await vigil::io::async_run(answers(), asio::use_awaitable);
}

}  // namespace

TEST_SUITE("io: in a guest") {
  TEST_CASE("fibers read and write on the host's thread") {
    guest_runtime g;
    int done = 0;
    g.start([&] {
      const std::thread::id host = std::this_thread::get_id();
      ping_pong(vigil::io::io_context(), 100);
      CHECK(std::this_thread::get_id() == host);
      ++done;
    });
    serve(g);
    CHECK(done == 1);
  }

  TEST_CASE("a read with a limit ends in time, and one that is cancelled ends") {
    guest_runtime g;
    g.start([] {
      socket_pair s(vigil::io::io_context());
      char byte = 0;
      const auto start = vigil::clock::now();
      CHECK_THROWS_AS(asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber.within(5ms)),
                      boost::system::system_error);
      CHECK(vigil::clock::now() - start >= 5ms);
      auto reader =
          vigil::spawn([&] { asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber); });
      vigil::sleep_for(1ms);
      reader.request_stop();
      CHECK_THROWS_AS(reader.join(), vigil::cancelled);
    });
    serve(g);
  }

  TEST_CASE("an attached io_context, which a thread of the program runs as well") {
    asio::io_context context;
    vigil::options o;
    vigil::io::attach(o, context);
    guest_runtime g(o);
    std::thread runs([&] { context.run(); });
    bool handled = false;
    g.start([&] {
      CHECK(&vigil::io::io_context() == &context);
      ping_pong(context, 20);
      auto ch = vigil::make_channel<int>(1);
      asio::post(context, [&, ch] { ch.send(1); });
      handled = ch.recv() == 1;
    });
    serve(g);
    context.stop();
    runs.join();
    CHECK(handled);
  }

  TEST_CASE("an exception of a handler goes to on_unhandled") {
    handed_over = nullptr;
    vigil::options o;
    o.on_unhandled = [](std::exception_ptr e) { handed_over = std::move(e); };
    guest_runtime g(o);
    g.start([] {
      auto ch = vigil::make_channel<int>(1);
      asio::post(vigil::io::io_context(), [] { throw std::runtime_error("in a handler"); });
      asio::post(vigil::io::io_context(), [ch] { ch.send(1); });
      static_cast<void>(ch.recv());
    });
    serve(g);
    REQUIRE(handed_over != nullptr);
    CHECK_THROWS_WITH(std::rethrow_exception(handed_over), "in a handler");
  }

  TEST_CASE("a handler that would have to wait gets an error, and the others go on") {
    guest_runtime g;
    bool refused = false;
    g.start([&] {
      const auto nothing = vigil::make_channel<int>();
      auto ch = vigil::make_channel<int>(1);
      asio::post(vigil::io::io_context(), [&, ch] {
        try {
          static_cast<void>(nothing.recv());
        } catch (const vigil::wrong_place&) {
          refused = true;
        }
        ch.send(1);
      });
      static_cast<void>(ch.recv());
    });
    serve(g);
    CHECK(refused);
  }

  TEST_CASE("no handler runs after the end of a run, and the next run goes on with them") {
    asio::io_context context;
    vigil::options o;
    vigil::io::attach(o, context);
    guest_runtime g(o);
    std::atomic<int> handled{0};
    for (int i = 0; i < 3; ++i) {
      g.start([&] { ping_pong(context, 5); });
      serve(g);
      const int before = handled.load();
      asio::post(context, [&] { ++handled; });
      std::this_thread::yield();
      CHECK(handled.load() == before);
      g.start([&] {
        while (handled.load() == before)
          vigil::sleep_for(1ms);
      });
      serve(g);
    }
    CHECK(handled.load() == 3);
  }

  TEST_CASE("an attached io_context may go before the guest, once its runs have ended") {
    auto context = std::make_unique<asio::io_context>();
    vigil::options o;
    vigil::io::attach(o, *context);
    guest_runtime g(o);
    g.start([&] { ping_pong(*context, 5); });
    serve(g);
    context.reset();
    g.start([] { vigil::sleep_for(1ms); });
    serve(g);
  }

  TEST_CASE("its runtime also does I/O without a host") {
    guest_runtime g;
    int done = 0;
    for (int i = 0; i < 2; ++i) {
      g.runtime().run([&] {
        ping_pong(vigil::io::io_context(), 10);
        ++done;
      });
    }
    g.start([&] {
      ping_pong(vigil::io::io_context(), 10);
      ++done;
    });
    serve(g);
    CHECK(done == 3);
  }

  TEST_CASE(
      "a coroutine of Asio's awaits a task on the executor; on the io_context that is an error") {
    handed_over = nullptr;
    vigil::options o;
    o.on_unhandled = [](std::exception_ptr e) { handed_over = std::move(e); };
    guest_runtime g(o);
    int done = 0;
    g.start([&] {
      asio::io_context& context = vigil::io::io_context();
      CHECK_THROWS(asio::co_spawn(context, awaits_answer(), use_fiber));
      CHECK(asio::co_spawn(vigil::io::executor(), awaits_answer(), use_fiber) == 8);
      ++done;
    });
    serve(g);
    CHECK(done == 1);
    REQUIRE(handed_over != nullptr);
    CHECK_THROWS_AS(std::rethrow_exception(handed_over), vigil::wrong_place);
  }

  TEST_CASE("the destructor ends what waits for I/O") {
    bool stopped = false;
    {
      guest_runtime g;
      g.start([&] {
        socket_pair s(vigil::io::io_context());
        char byte = 0;
        try {
          asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber);
        } catch (const vigil::stopped&) {
          stopped = true;
          throw;
        }
      });
      CHECK(poll_all(g));
    }
    CHECK(stopped);
  }
}
