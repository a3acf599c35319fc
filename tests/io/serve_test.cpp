// io::serve: what it accepts, how it ends, and the fate of its connections; at exact
// times over memory_acceptor, and over real sockets. The case of a failing accept is in
// accept_error_test.
#include "io/serve_test.hpp"

#include <vigil/sync.hpp>

#include <algorithm>
#include <filesystem>
#include <new>
#include <stdexcept>

#include <boost/asio/ip/tcp.hpp>

#include <unistd.h>

using namespace vigil::io_testing;

namespace {

using tcp = asio::ip::tcp;

std::atomic<int> unhandled{0};

}  // namespace

TEST_SUITE("io::serve") {
  TEST_CASE("a stop of its fiber, or of the server, ends it although clients wait") {
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::io_context();
      for (const bool by_context : {false, true}) {
        tcp::acceptor acceptor(c, {asio::ip::address_v4::loopback(), 0});
        std::vector<tcp::socket> clients;
        for (int i = 0; i < 10; ++i)
          clients.emplace_back(c).async_connect(acceptor.local_endpoint(), use_fiber);
        const auto stopping = vigil::with_cancel(vigil::background());
        int served = 0;
        auto server = vigil::spawn(
            [&] { serve(stopping.ctx, acceptor, [&](const tcp::socket&) { ++served; }); });
        if (by_context) {
          stopping.cancel();
          server.join();
        } else {
          server.request_stop();
          CHECK_THROWS_AS(server.join(), vigil::cancelled);
        }
        CHECK(served == 0);
      }
    });
  }

  TEST_CASE("each connection has a fiber of its own, over TCP and Unix sockets") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      const auto check = [&](auto& acceptor, auto connect) {
        const auto stopping = vigil::with_cancel(vigil::background());
        std::atomic<int> ended{0};
        auto server = vigil::spawn([&] {
          serve(stopping.ctx, acceptor, [&](auto peer) {
            echo_bytes(std::move(peer));
            ended.fetch_add(1);
          });
        });
        {
          auto one = connect();
          auto other = connect();
          for (int i = 0; i < 3; ++i) {
            write_byte(other);
            CHECK(read_byte(other));
            write_byte(one);
            CHECK(read_byte(one));
          }
        }
        stopping.cancel();
        server.join();
        CHECK(ended.load() == 2);
      };
      tcp::acceptor over_tcp(c, {asio::ip::address_v4::loopback(), 0});
      check(over_tcp, [&] {
        tcp::socket s(c);
        s.async_connect(over_tcp.local_endpoint(), use_fiber);
        return s;
      });
      const std::string path = std::filesystem::temp_directory_path() /
                               ("vigil-serve-test-" + std::to_string(::getpid()));
      ::unlink(path.c_str());
      const asio::local::stream_protocol::endpoint place(path);
      asio::local::stream_protocol::acceptor over_unix(c, place);
      check(over_unix, [&] {
        unix_socket s(c);
        s.async_connect(place, use_fiber);
        return s;
      });
      ::unlink(path.c_str());
    });
  }

  TEST_CASE("stopping ends idle connections at once, half-done ones end by themselves") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      vigil::fiber<> server =
          vigil::spawn([&] { serve(stopping.ctx, acceptor, answers_after(3s, stopping.ctx)); });
      memory_stream idle = acceptor.connect();
      memory_stream busy = acceptor.connect();
      write_byte(busy);
      vigil::sleep_for(1s);
      const auto start = vigil::clock::now();
      stopping.cancel();
      CHECK_FALSE(read_byte(idle));
      CHECK(since(start) == 0s);
      CHECK(read_byte(busy));  // the answer
      CHECK(since(start) == 2s);
      CHECK_FALSE(read_byte(busy));
      server.join();
      CHECK(since(start) == 2s);
    });
  }

  TEST_CASE("on_stop ends idle connections, even when the acceptor is closed, not half-done ones") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      int told = 0;
      vigil::fiber<> server = vigil::spawn([&] {
        const auto on_stop = [&] {
          ++told;
          stopping.cancel();
        };
        serve(stopping.ctx, acceptor, answers_after(3s, stopping.ctx), {.on_stop = on_stop});
      });
      memory_stream idle = acceptor.connect();
      memory_stream busy = acceptor.connect();
      write_byte(busy);
      vigil::sleep_for(1s);
      CHECK(told == 0);
      const auto start = vigil::clock::now();
      acceptor.close();
      CHECK_FALSE(read_byte(idle));
      CHECK(since(start) == 0s);
      CHECK(read_byte(busy));
      server.join();
      CHECK(since(start) == 2s);
      CHECK(told == 1);
    });
  }

  TEST_CASE("an on_stop that throws or takes long costs the connections nothing but its time") {
    in_virtual([] {
      memory_acceptor acceptor;
      int reported = 0;
      vigil::fiber<> server = vigil::spawn([&] {
        const auto handler = [](memory_stream, const vigil::context& ctx) {
          vigil::sleep_for(3s, ctx);
        };
        serve(acceptor,
              handler,
              {.grace = 4s,
               .on_error = [&](const std::exception_ptr&) { ++reported; },
               .on_stop =
                   [] {
                     vigil::sleep_for(2s);
                     throw std::runtime_error("on purpose");
                   }});
      });
      memory_stream early = acceptor.connect();
      vigil::sleep_for(1s);
      memory_stream late = acceptor.connect();
      vigil::sleep_for(0s);
      vigil::testing::settle();
      const auto start = vigil::clock::now();
      acceptor.close();
      CHECK_FALSE(read_byte(early));
      CHECK(since(start) == 2s);
      CHECK_FALSE(read_byte(late));
      CHECK(since(start) == 3s);
      server.join();
      CHECK(since(start) == 3s);
      CHECK(reported == 1);
    });
  }

  TEST_CASE("when the grace is over ctx is done and the fibers are asked to stop") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      int cancelled = 0;
      int stopped = 0;
      auto server = vigil::spawn([&] {
        serve(stopping.ctx,
              acceptor,
              [&, n = 0](memory_stream peer, const vigil::context& ctx) mutable {
                if (n++ == 0) {
                  try {
                    read_byte(peer, use_fiber.under(ctx));
                  } catch (const vigil::cancelled&) {
                    ++cancelled;
                    throw;
                  }
                } else {
                  try {
                    read_byte(peer);  // heeds neither
                  } catch (const vigil::stopped&) {
                    ++stopped;
                    throw;
                  }
                }
              },
              {.grace = 4s});
      });
      memory_stream one = acceptor.connect();
      memory_stream other = acceptor.connect();
      vigil::sleep_for(1s);
      const auto start = vigil::clock::now();
      stopping.cancel();
      server.join();
      CHECK(since(start) == 4s);
      CHECK(cancelled == 1);
      CHECK(stopped == 1);
    });
  }

  TEST_CASE("a client still in the backlog when it stops is not accepted, and hears of the end") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      stopping.cancel();
      memory_stream late = acceptor.connect();
      int served = 0;
      serve(stopping.ctx, acceptor, [&](memory_stream) { ++served; });
      CHECK(served == 0);
      acceptor.close();
      CHECK_FALSE(read_byte(late));
      CHECK_THROWS_AS(acceptor.connect(), boost::system::system_error);
    });
  }

  TEST_CASE("a stop of the calling fiber cuts all short, and no fiber is left") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      auto one = std::make_unique<memory_stream>(acceptor.connect());
      int served = 0;
      {
        const auto server = vigil::spawn([&] {
          serve(acceptor, [&](memory_stream peer) {
            ++served;
            read_byte(peer);
          });
        });
        vigil::sleep_for(1s);
      }  // asks it to stop, and joins
      CHECK(served == 1);
      CHECK_FALSE(read_byte(*one));
      CHECK(vigil::stats().fibers_alive == 1);
    });
  }

  TEST_CASE("at most the limit at a time: the next is accepted when one has ended") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      int now = 0;
      int most = 0;
      std::vector<std::chrono::nanoseconds> begun;
      const auto start = vigil::clock::now();
      auto server = vigil::spawn([&] {
        serve(stopping.ctx,
              acceptor,
              [&](memory_stream) {
                begun.push_back(since(start));
                most = std::max(most, ++now);
                vigil::sleep_for(1s);
                --now;
              },
              {.connections = 2});
      });
      std::vector<memory_stream> clients;
      for (int i = 0; i < 5; ++i)
        clients.push_back(acceptor.connect());
      vigil::sleep_for(10s);
      CHECK(most == 2);
      CHECK(begun == std::vector<std::chrono::nanoseconds>{0s, 0s, 1s, 1s, 2s});
      // A fiber that waits for room can be stopped as well.
      for (int i = 0; i < 3; ++i)
        clients.push_back(acceptor.connect());
      vigil::sleep_for(0s);
      vigil::testing::settle();
      stopping.cancel();
      server.join();
      CHECK(begun.size() == 7);
    });
  }

  TEST_CASE("a handler's exception ends its connection only, and is reported unless it is an end") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      int told = 0;
      int served = 0;
      const auto handler = [&](memory_stream) {
        switch (served++) {
          case 0:
            throw boost::system::system_error(asio::error::connection_reset);
          case 1:
            throw vigil::cancelled("enough");
          case 2:
            throw std::runtime_error("a fault of the handler's");
          default:
            throw std::bad_alloc();
        }
      };
      auto server = vigil::spawn([&] {
        serve(stopping.ctx, acceptor, handler, {.on_error = [&](const std::exception_ptr& error) {
                ++told;
                vigil::sleep_for(1s);  // it may wait
                CHECK(error != nullptr);
              }});
      });
      for (int i = 0; i < 4; ++i) {
        memory_stream s = acceptor.connect();
        CHECK_FALSE(read_byte(s));
      }
      stopping.cancel();
      server.join();
      CHECK(served == 4);
      CHECK(told == 2);
    });
  }

  TEST_CASE("without on_error an error goes where a fiber's unhandled errors go") {
    unhandled.store(0);
    vigil::options o;
    o.on_unhandled = [](std::exception_ptr) { unhandled.fetch_add(1); };
    in_virtual({.seed = 1, .runtime = o}, [] {
      memory_acceptor acceptor;
      auto server = vigil::spawn(
          [&] { serve(acceptor, [](memory_stream) { throw std::runtime_error("a fault"); }); });
      memory_stream s = acceptor.connect();
      CHECK_FALSE(read_byte(s));
      acceptor.close();
      server.join();
    });
    CHECK(unhandled.load() == 1);
  }

  TEST_CASE("an on_error that throws does not affect the other connections") {
    unhandled.store(0);
    vigil::options o;
    o.on_unhandled = [](std::exception_ptr) { unhandled.fetch_add(1); };
    in_virtual({.seed = 1, .runtime = o}, [] {
      memory_acceptor acceptor;
      int served = 0;
      auto server = vigil::spawn([&] {
        const auto handler = [&](memory_stream peer) {
          ++served;
          read_byte(peer);
          throw std::runtime_error("a fault");
        };
        serve(acceptor, handler, {.on_error = [](std::exception_ptr error) {
                std::rethrow_exception(std::move(error));
              }});
      });
      memory_stream waits = acceptor.connect();
      for (int i = 0; i < 2; ++i) {
        memory_stream s = acceptor.connect();
        write_byte(s);
        CHECK_FALSE(read_byte(s));
      }
      write_byte(waits);
      CHECK_FALSE(read_byte(waits));
      acceptor.close();
      server.join();
      CHECK(served == 3);
    });
    CHECK(unhandled.load() == 3);
  }

  TEST_CASE("an acceptor that is closed meanwhile ends it as stopping does") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      auto server = vigil::spawn([&] {
        serve(acceptor, [](memory_stream peer) {
          read_byte(peer);
          vigil::sleep_for(2s);
        });
      });
      memory_stream s = acceptor.connect();
      write_byte(s);
      vigil::sleep_for(1s);
      const auto start = vigil::clock::now();
      acceptor.close();
      server.join();
      CHECK(since(start) == 1s);
      CHECK(error_of([&] { serve(acceptor, echo_bytes); }) == asio::error::bad_descriptor);
    });
    in_runtime({.workers = {1}}, [] {
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      auto server = vigil::spawn([&] { serve(acceptor, echo_bytes); });
      vigil::sleep_for(1ms);
      acceptor.close();
      server.join();
    });
  }

  TEST_CASE("limits out of range, nil contexts and plain threads are refused") {
    in_virtual([] {
      memory_acceptor acceptor;
      CHECK_THROWS_AS(serve(acceptor, echo_bytes, {.connections = 0}), std::invalid_argument);
      CHECK_THROWS_AS(serve(acceptor, echo_bytes, {.backoff = 0ns}), std::invalid_argument);
      CHECK_THROWS_AS(serve(vigil::context(), acceptor, echo_bytes), std::invalid_argument);
    });
    memory_acceptor acceptor;
    CHECK_THROWS_AS(serve(acceptor, echo_bytes), vigil::wrong_place);
  }
}
