// io::serve: what it accepts, how it ends, and what it does when accept fails; at
// exact times over memory_acceptor, and over real sockets.
#include "io/io_test.hpp"

#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/serve.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using namespace vigil::io_testing;
using vigil::io::memory_acceptor;
using vigil::io::memory_stream;
using vigil::io::serve;
using vigil::io::use_fiber;

namespace {

using tcp = asio::ip::tcp;

// Reads a byte; false at the end of the stream.
template <class Stream>
bool read_byte(Stream& s, const vigil::io::fiber_token& token = {}) {
  char byte = 0;
  const auto [error, n] = s.async_read_some(asio::buffer(&byte, 1), asio::as_tuple(token));
  return !error && n == 1;
}

template <class Stream>
void write_byte(Stream& s) {
  s.async_write_some(asio::buffer("x", 1), use_fiber);
}

// Sends each byte back until the peer closes.
constexpr auto echo = [](auto peer) {
  while (read_byte(peer))
    write_byte(peer);
};

// Fails as it is told, then accepts what connects.
class failing_acceptor {
 public:
  template <class Token>
  auto async_accept(Token&& token) {
    calls.push_back(vigil::clock::now());
    if (!errors.empty() && errors.front() == no_memory) {
      errors.pop_front();
      throw std::bad_alloc();
    }
    if (errors.empty()) return below.async_accept(std::forward<Token>(token));
    const int code = errors.front();
    errors.pop_front();
    return asio::async_initiate<Token, void(error_code, memory_stream)>(
        [code](auto handler) {
          std::move(handler)(error_code(code, boost::system::system_category()),
                             memory_stream(nullptr, nullptr));
        },
        token);
  }

  static constexpr int no_memory = -1;

  std::deque<int> errors;
  std::vector<vigil::clock::time_point> calls;
  memory_acceptor below;
};

// The waits between its calls.
std::vector<std::chrono::nanoseconds> waits_of(const failing_acceptor& a) {
  std::vector<std::chrono::nanoseconds> waits;
  for (std::size_t i = 1; i < a.calls.size(); ++i)
    waits.push_back(a.calls[i] - a.calls[i - 1]);
  return waits;
}

std::atomic<int> unhandled{0};

}  // namespace

TEST_SUITE("io::serve") {
  TEST_CASE("each connection has a fiber of its own, over TCP and Unix sockets") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::context();
      const auto check = [&](auto& acceptor, auto connect) {
        const auto stopping = vigil::with_cancel(vigil::background());
        std::atomic<int> ended{0};
        auto server = vigil::spawn([&] {
          serve(stopping.ctx, acceptor, [&](auto peer) {
            echo(std::move(peer));
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
      vigil::fiber<> server = vigil::spawn([&] {
        serve(stopping.ctx, acceptor, [&](memory_stream peer, const vigil::context& ctx) {
          while (read_byte(peer, use_fiber.under(stopping.ctx))) {
            vigil::sleep_for(3s, ctx);  // the request takes so long
            write_byte(peer);
          }
        });
      });
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

  TEST_CASE("who is still in the backlog when it stops is not accepted, and hears of the end") {
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

  TEST_CASE("at most so many at a time: the next is accepted when one has ended") {
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
      // Also while it waits for room it can be stopped.
      for (int i = 0; i < 3; ++i)
        clients.push_back(acceptor.connect());
      vigil::sleep_for(0s);
      vigil::testing::settle();
      stopping.cancel();
      server.join();
      CHECK(begun.size() == 7);
    });
  }

  TEST_CASE("what a handler throws ends its connection only, and is told if it is no end") {
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

  TEST_CASE("without on_error it goes where a fiber's unhandled errors go") {
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

  TEST_CASE("an on_error that throws is no matter of the other connections") {
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
      CHECK(error_of([&] { serve(acceptor, echo); }) == asio::error::bad_descriptor);
    });
    in_runtime({.workers = {1}}, [] {
      tcp::acceptor acceptor(vigil::io::context(), {asio::ip::address_v4::loopback(), 0});
      auto server = vigil::spawn([&] { serve(acceptor, echo); });
      vigil::sleep_for(1ms);
      acceptor.close();
      server.join();
    });
  }

  TEST_CASE("what is wrong with the acceptor comes out") {
    in_runtime({.workers = {1, 2}}, [] {
      tcp::acceptor a(vigil::io::context());
      CHECK(error_of([&] { serve(a, echo); }) == asio::error::bad_descriptor);
      a.open(tcp::v4());  // nobody listens
      CHECK(error_of([&] { serve(a, echo); }) == asio::error::invalid_argument);
    });
    for_each_seed(5, [] {
      failing_acceptor acceptor;
      acceptor.below.connect();
      memory_stream s = acceptor.below.connect();
      int served = 0;
      auto server = vigil::spawn([&] {
        return error_of([&] {
          serve(acceptor, [&](memory_stream peer) {
            ++served;
            while (read_byte(peer)) {
            }
          });
        });
      });
      vigil::sleep_for(1s);
      CHECK(served == 2);
      acceptor.errors = {ENOTSOCK};
      acceptor.below.connect();  // ends the accept that waits
      const auto start = vigil::clock::now();
      const error_code error = server.join();
      CHECK(error.value() == ENOTSOCK);
      CHECK(since(start) == 10s);  // those that were served had the grace
    });
  }

  TEST_CASE("without descriptors or memory it backs off, doubling up to a second, never spins") {
    for_each_seed(3, [] {
      failing_acceptor acceptor;
      for (int i = 0; i < 2; ++i) {
        for (const int code : {EMFILE, ENFILE, ENOBUFS, ENOMEM, failing_acceptor::no_memory})
          acceptor.errors.push_back(code);
      }
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn([&] { serve(stopping.ctx, acceptor, echo, {.grace = 0s}); });
      vigil::sleep_for(1h);
      CHECK(waits_of(acceptor) == std::vector<std::chrono::nanoseconds>{
                                      5ms, 10ms, 20ms, 40ms, 80ms, 160ms, 320ms, 640ms, 1s, 1s});
      // From the beginning once it has succeeded; and nothing was lost.
      acceptor.errors = {EMFILE, EMFILE};
      acceptor.calls.clear();
      memory_stream s = acceptor.below.connect();
      write_byte(s);
      CHECK(read_byte(s));
      vigil::sleep_for(1h);
      CHECK(waits_of(acceptor) == std::vector<std::chrono::nanoseconds>{5ms, 10ms});
      // Stopping ends the wait.
      acceptor.errors = {EMFILE};
      acceptor.below.connect();
      acceptor.below.connect();
      vigil::testing::settle();
      const auto start = vigil::clock::now();
      stopping.cancel();
      server.join();
      CHECK(since(start) == 0s);
    });
  }

  TEST_CASE("a connection that is gone before it is accepted is forgotten, at once") {
    for_each_seed(3, [] {
      failing_acceptor acceptor;
      acceptor.errors = {ECONNABORTED, EINTR, EPROTO, ENETDOWN, ECONNABORTED};
      memory_stream s = acceptor.below.connect();
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn([&] { serve(stopping.ctx, acceptor, echo); });
      const auto start = vigil::clock::now();
      write_byte(s);
      CHECK(read_byte(s));
      CHECK(since(start) == 0s);
      // Without end it backs off, too.
      acceptor.calls.clear();
      acceptor.errors.assign(1000, ECONNABORTED);
      acceptor.below.connect();
      vigil::sleep_for(10s);
      CHECK(acceptor.calls.size() < 40);
      stopping.cancel();
      server.join();
    });
  }

  TEST_CASE("if no fiber can be had the connection is closed, and the next one waits") {
    vigil::options o;
    o.max_fibers = 4;  // main, server, two connections
    in_virtual({.seed = 1, .runtime = o}, [] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn([&] { serve(stopping.ctx, acceptor, echo); });
      {
        memory_stream one = acceptor.connect();
        memory_stream two = acceptor.connect();
        memory_stream refused = acceptor.connect();
        CHECK_FALSE(read_byte(refused));
      }
      memory_stream later = acceptor.connect();
      const auto start = vigil::clock::now();
      write_byte(later);
      CHECK(read_byte(later));
      CHECK(since(start) == 5ms);
      stopping.cancel();
      server.request_stop();
      CHECK_THROWS_AS(server.join(), vigil::cancelled);
    });
  }

  TEST_CASE("limits out of range, nil contexts and plain threads are refused") {
    in_virtual([] {
      memory_acceptor acceptor;
      CHECK_THROWS_AS(serve(acceptor, echo, {.connections = 0}), std::invalid_argument);
      CHECK_THROWS_AS(serve(acceptor, echo, {.backoff = 0ns}), std::invalid_argument);
      CHECK_THROWS_AS(serve(vigil::context(), acceptor, echo), std::invalid_argument);
    });
    memory_acceptor acceptor;
    CHECK_THROWS_AS(serve(acceptor, echo), vigil::wrong_place);
  }
}
