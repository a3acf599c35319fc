// The stop of examples/io/http_server, at exact moments.
#include "io/http_test.hpp"

using namespace vigil::http_testing;

namespace {

// Clients of a site: one without a request, one with its answer, and one with half of a
// request sent.
struct three_clients {
  explicit three_clients(site& s) : never_asked(s.connect()), asked(s.connect()), half(begun(s)) {}

  // Checks that the idle ones are cut at the present instant, which is `stopped`.
  void check_idle_end_at_once(clock::time_point stopped) {
    CHECK(never_asked.is_closed());
    CHECK(asked.is_closed());
    CHECK(since(stopped) == 0s);
  }

  memory_client never_asked;
  memory_client asked;
  memory_client half;

 private:
  memory_client begun(site& s) {
    asked.send(hello);
    CHECK(asked.receive().result_int() == 200);
    memory_client c = s.connect();
    c.send(hello.substr(0, 15));
    return c;
  }
};

}  // namespace

TEST_SUITE("http server: time") {
  // Node, libuv: close(): idle connections end at once, half-sent requests are
  // left alone.
  TEST_CASE("a stop ends idle connections at once and lets half-sent requests finish") {
    for_each_seed(20, [] {
      site s;
      three_clients clients(s);
      auto half_body = s.connect();
      half_body.send("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nab");
      auto streaming = s.connect();
      streaming.get("/count");
      vigil::sleep_for(50ms);

      const auto start = clock::now();
      s.stop();
      clients.check_idle_end_at_once(start);

      CHECK(streaming.receive().body().size() == 35);
      CHECK(streaming.is_closed());
      CHECK(since(start) == 350ms);
      clients.half.send(hello.substr(15));
      const auto a = clients.half.receive();
      CHECK(a.result_int() == 200);
      CHECK(a["Connection"] == "close");
      CHECK(clients.half.is_closed());
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
      three_clients clients(s);
      vigil::sleep_for(50ms);

      const auto start = clock::now();
      s.close_acceptor();
      clients.check_idle_end_at_once(start);
      vigil::sleep_for(5s);
      clients.half.send(hello.substr(15));
      CHECK(clients.half.receive()["Connection"] == "close");
      CHECK(clients.half.is_closed());
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
