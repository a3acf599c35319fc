// The stop of examples/io/http_server, at exact moments.
#include "io/http_test.hpp"

using namespace vigil::http_testing;
using vigil::clock;

TEST_SUITE("http server: time") {
  // Node, libuv: close(): idle connections end at once, half-sent requests are
  // left alone.
  TEST_CASE("a stop ends idle connections at once and lets half-sent requests finish") {
    for_each_seed(20, [] {
      site s;
      auto never_asked = s.connect();
      auto asked = s.connect();
      asked.send(hello);
      CHECK(asked.receive().result_int() == 200);
      auto half = s.connect();
      half.send(hello.substr(0, 15));
      auto half_body = s.connect();
      half_body.send("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nab");
      auto streaming = s.connect();
      streaming.get("/count");
      vigil::sleep_for(50ms);

      const auto start = clock::now();
      s.stop();
      CHECK(never_asked.is_closed());
      CHECK(asked.is_closed());
      CHECK(since(start) == 0s);

      CHECK(streaming.receive().body().size() == 35);
      CHECK(streaming.is_closed());
      CHECK(since(start) == 350ms);
      half.send(hello.substr(15));
      const auto a = half.receive();
      CHECK(a.result_int() == 200);
      CHECK(a["Connection"] == "close");
      CHECK(half.is_closed());
      half_body.send("cd");
      CHECK(half_body.receive().body() == "abcd");
      CHECK(half_body.is_closed());
      s.join();
      CHECK(since(start) == 350ms);
    });
  }

  // Node, libuv: close(): idle connections end at once, half-sent requests are
  // left alone.
  TEST_CASE("closing the acceptor is a stop: idle connections end at once") {
    for_each_seed(20, [] {
      site s;
      auto never_asked = s.connect();
      auto asked = s.connect();
      asked.send(hello);
      CHECK(asked.receive().result_int() == 200);
      auto half = s.connect();
      half.send(hello.substr(0, 15));
      vigil::sleep_for(50ms);

      const auto start = clock::now();
      s.close_acceptor();
      CHECK(never_asked.is_closed());
      CHECK(asked.is_closed());
      CHECK(since(start) == 0s);
      vigil::sleep_for(5s);
      half.send(hello.substr(15));
      CHECK(half.receive()["Connection"] == "close");
      CHECK(half.is_closed());
      s.join();
      CHECK(since(start) == 5s);
    });
  }

  // Node, libuv: close(): idle connections end at once, half-sent requests are
  // left alone.
  TEST_CASE("after the grace of a stop the remaining connections are cut") {
    in_virtual([] {
      const auto endless = [](const web::request&, web::response& out, const vigil::context& ctx) {
        for (;;) {
          out.write("x");
          vigil::sleep_for(1h, ctx);
        }
      };
      web::options how;
      how.header = 1h;
      vigil::io::serve_limits limits;
      limits.grace = 3s;
      site s(how, endless, limits);
      auto streaming = s.connect();
      streaming.send(hello);
      auto half = s.connect();
      half.send("GET");
      vigil::sleep_for(1s);
      const auto start = clock::now();
      s.stop();
      s.join();
      CHECK(since(start) == 3s);
      CHECK(half.is_closed());
    });
  }
}
