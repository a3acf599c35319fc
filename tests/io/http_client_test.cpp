// The pool of kept connections of examples/io/http_server/client_pool.hpp.
#include "http_server/client_pool.hpp"
#include "io/http_test.hpp"
#include "support/note.hpp"

#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

using namespace vigil::http_testing;
using boost::asio::ip::tcp;

namespace {

using memory_pool = web::client_pool<vigil::io::memory_stream>;

// A server that closes after ten seconds, and announces nine.
web::options announces_nine() {
  web::options how;
  how.idle = 10s;
  how.tells_idle = true;
  return how;
}

// Answers with a Keep-Alive field that is the request's.
void echo_keep_alive(const web::request& in, web::response& out, const vigil::context&) {
  out.set("Keep-Alive", in.header("Keep-Alive"));
  out.send("x");
}

memory_pool pool_of(site& s) {
  return memory_pool([&s] { return s.connect_stream(); });
}

unsigned status(memory_pool& pool, std::string_view request = hello) {
  return pool.ask(request).result_int();
}

}  // namespace

TEST_SUITE("http client: pool") {
  TEST_CASE("a second request goes over the connection of the first") {
    in_virtual([] {
      site s(announces_nine());
      memory_pool pool = pool_of(s);
      for (int i = 0; i < 5; ++i) {
        CHECK(status(pool) == 200);
        CHECK(pool.kept() == 1);
        vigil::sleep_for(7s);  // counts from the last answer
      }
      CHECK(pool.connects() == 1);
      CHECK(s.server().served() == 5);
    });
  }

  // Node, libuv: a free socket is kept 1 s less than announced
  // (test-http-client-keep-alive-hint, test-http-agent-timeout).
  TEST_CASE("it is used again while a second of the announced time is left, and then closed") {
    for_each_seed(5, [] {
      site s(announces_nine());
      memory_pool pool = pool_of(s);
      CHECK(status(pool) == 200);
      vigil::sleep_for(8s - 1ns);
      CHECK(s.server().connections() == 1);
      CHECK(status(pool) == 200);
      CHECK(pool.connects() == 1);
      vigil::sleep_for(8s + 1ns);
      CHECK(pool.kept() == 0);
      vigil::testing::settle();
      CHECK(s.server().connections() == 0);
      CHECK(status(pool) == 200);
      CHECK(pool.connects() == 2);
    });
  }

  // Node, libuv: a hint that leaves nothing is not kept.
  TEST_CASE(
      "what announces no more than a second, or nothing that can be read, is closed at once") {
    in_virtual([] {
      site s({}, echo_keep_alive);
      const auto keeps = [&s](const std::string& value) {
        memory_pool pool = pool_of(s);
        CHECK(status(pool, request_of("Keep-Alive: " + value + "\r\n")) == 200);
        const bool is_kept = pool.kept() == 1;
        vigil::testing::settle();
        CHECK(s.server().connections() == (is_kept ? 1 : 0));
        return is_kept;
      };
      for (const char* value : {"timeout=2",
                                "timeout=5, max=100",
                                "max=100,timeout=5",
                                "TimeOut=5 ,max=1",
                                "timeout=99999999999999999999999"}) {
        NOTE(value);
        CHECK(keeps(value));
      }
      for (const char* value : {"timeout=1",
                                "timeout=0",
                                "timeout=-5",
                                "timeout=",
                                "timeout=5s",
                                "timeout=5.5",
                                "timeout",
                                "max=5",
                                "mytimeout=5",
                                ",",
                                "x"}) {
        NOTE(value);
        CHECK_FALSE(keeps(value));
      }
    });
  }

  TEST_CASE("without an announcement each request has its connection") {
    in_virtual([] {
      site s;
      memory_pool pool = pool_of(s);
      for (int i = 0; i < 3; ++i)
        CHECK(status(pool) == 200);
      CHECK(pool.connects() == 3);
      vigil::testing::settle();
      CHECK(s.server().connections() == 0);
    });
  }

  TEST_CASE("a connection that the server closes is not kept, whatever it announces") {
    in_virtual([] {
      site s(announces_nine(), [](const web::request& in, web::response& out, const auto&) {
        out.set("Keep-Alive", "timeout=100");
        if (in.version() == 10) {
          out.write("to the end");
        } else {
          out.send("x");
        }
      });
      memory_pool pool = pool_of(s);
      CHECK(status(pool, request_of("Connection: close\r\n")) == 200);
      CHECK(pool.kept() == 0);
      CHECK(pool.ask("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").body() ==
            "to the end");
      CHECK(pool.kept() == 0);
      CHECK(status(pool, "nonsense\r\n\r\n") == 400);
      CHECK(pool.kept() == 0);
      CHECK(status(pool) == 200);
      CHECK(pool.kept() == 1);
      CHECK(pool.connects() == 4);
    });
  }

  TEST_CASE("bytes beyond the answer end the connection") {
    in_virtual([] {
      site s(announces_nine());
      memory_pool pool = pool_of(s);
      // Two requests in one: the pool knows of one answer.
      CHECK(status(pool, std::string(hello) + std::string(hello)) == 200);
      CHECK(pool.kept() == 0);
    });
  }

  TEST_CASE("an interim answer is skipped, and a HEAD has no body") {
    in_virtual([] {
      site s(announces_nine());
      memory_pool pool = pool_of(s);
      CHECK(pool.ask("HEAD /hello HTTP/1.1\r\nHost: test\r\n\r\n", true).body() == "");
      vigil::io::memory_acceptor acceptor;
      memory_pool other([&] { return acceptor.connect(); });
      auto peer = vigil::spawn([&] {
        vigil::io::deadline_stream<vigil::io::memory_stream> stream(
            acceptor.async_accept(vigil::io::use_fiber));
        std::string in;
        asio::read_until(stream, asio::dynamic_buffer(in), "\r\n\r\n");
        const std::string_view out =
            "HTTP/1.1 103 Early Hints\r\n\r\n"
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nKeep-Alive: timeout=5\r\n\r\nx";
        asio::write(stream, asio::buffer(out));
        vigil::sleep_for(1s);
      });
      CHECK(other.ask(hello).body() == "x");
      CHECK(other.kept() == 1);
      peer.join();
    });
  }

  TEST_CASE("requests at the same time have connections of their own, and few are kept") {
    for_each_seed(3, [] {
      site s(announces_nine());
      memory_pool pool([&s] { return s.connect_stream(); }, 3);
      const auto ask_together = [&] {
        std::vector<vigil::fiber<>> fibers;
        for (int i = 0; i < 10; ++i) {
          fibers.push_back(vigil::spawn(
              [&] { CHECK(status(pool, "GET /count HTTP/1.1\r\nHost: test\r\n\r\n") == 200); }));
        }
        for (auto& f : fibers)
          f.join();
      };
      ask_together();
      CHECK(pool.connects() == 10);
      CHECK(pool.kept() == 3);
      ask_together();
      CHECK(pool.connects() == 17);
      vigil::sleep_for(9s);
      CHECK(pool.kept() == 0);
      CHECK(s.server().connections() == 0);
    });
  }

  TEST_CASE("requests at random times are never sent to a connection that the server closes") {
    for_each_seed(20, [](std::uint64_t seed) {
      site s(announces_nine());
      memory_pool pool = pool_of(s);
      std::vector<vigil::fiber<>> fibers;
      for (int i = 0; i < 4; ++i) {
        fibers.push_back(vigil::spawn(
            [&pool, random = seeded(100 * seed + static_cast<std::uint64_t>(i))]() mutable {
              for (int k = 0; k < 50; ++k) {
                CHECK(status(pool) == 200);
                vigil::sleep_for(std::chrono::milliseconds(7900 + random.below(2200)));
              }
            }));
      }
      for (auto& f : fibers)
        f.join();
      CHECK(s.server().served() == 200);
      CHECK(pool.connects() < 200);
    });
  }

  TEST_CASE("an error of the connection comes out, and the connection is not kept") {
    in_virtual([] {
      site s(announces_nine());
      memory_pool pool = pool_of(s);
      CHECK(status(pool) == 200);
      CHECK(pool.kept() == 1);
      s.stop();
      s.join();
      CHECK_THROWS_AS(status(pool), boost::system::system_error);
      CHECK(pool.kept() == 0);
    });
  }

  TEST_CASE("the end of the pool closes what it keeps") {
    in_virtual([] {
      site s(announces_nine());
      {
        memory_pool pool = pool_of(s);
        CHECK(status(pool) == 200);
      }
      vigil::testing::settle();
      CHECK(s.server().connections() == 0);
    });
  }

  TEST_CASE("over TCP connections are used again, and closed before the server does") {
    in_runtime({.workers = {1, 2}}, [] {
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      web::server server(echo_keep_alive);
      const auto stopping = vigil::with_cancel(vigil::background());
      auto serving = vigil::spawn([&] { server.serve(stopping.ctx, acceptor); });
      {
        web::client_pool<tcp::socket> pool([&] {
          tcp::socket s(vigil::io::io_context());
          s.async_connect(acceptor.local_endpoint(), vigil::io::use_fiber);
          return s;
        });
        const auto ask = [&] {
          CHECK(pool.ask(request_of("Keep-Alive: timeout=2\r\n")).result_int() == 200);
        };
        auto last = clock::now();
        for (int i = 0; i < 20; ++i) {
          last = clock::now();
          ask();
        }
        // Other programs may have kept this one from asking for a second, now and then.
        const std::uint64_t connects = pool.connects();
        CHECK(connects < 20);
        while (server.connections() != 0)
          vigil::sleep_for(1ms);
        CHECK(since(last) >= 1s);
        CHECK(pool.kept() == 0);
        ask();
        CHECK(pool.connects() == connects + 1);
        while (server.served() < 21)  // a client may have its answer before it is counted
          vigil::sleep_for(100us);
        CHECK(server.served() == 21);
      }
      stopping.cancel();
      serving.join();
    });
  }
}
