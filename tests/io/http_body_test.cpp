// Bodies that examples/io/http_server refuses: before 100 Continue, and so that a client
// that still sends reads the answer.
#include "io/http_test.hpp"

#include <stdexcept>
#include <string>

using namespace vigil::http_testing;

namespace {

constexpr std::string_view too_large = "Content-Length: 100000000\r\n";

}  // namespace

TEST_SUITE("http server: bodies") {
  TEST_CASE("100 Continue is said before the body is waited for, if it is wanted") {
    in_virtual([] {
      site s;
      auto c = s.connect();
      c.send(post_of("Expect: 100-Continue\r\nContent-Length: 3\r\n", ""));
      CHECK(c.receive().result_int() == 100);
      c.send("abc");
      CHECK(c.receive().body() == "abc");
      // The client did not wait, so it gets no 100.
      c.send(post_of("Expect: 100-continue\r\nContent-Length: 3\r\n", "abc"));
      CHECK(c.receive().body() == "abc");
      CHECK(
          s.ask(post_of("Expect: 100-continue\r\nContent-Length: 2000000\r\n", "")).result_int() ==
          413);
      CHECK(s.ask(post_of("Expect: miracles\r\n", "")).result_int() == 417);
      auto old = s.connect();
      old.send("POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
      vigil::sleep_for(1s);
      old.send("x");
      CHECK(old.receive().body() == "x");
    });
  }

  TEST_CASE("before_body refuses a request before its client is told to send the body") {
    in_virtual([] {
      int answered = 0;
      web::options how;
      how.before_body = [](const web::request& in, web::response& out, const vigil::context&) {
        CHECK(in.body().empty());
        if (in.path() == "/silent") out.status = 403;
        if (in.path() == "/login") {
          out.status = 401;
          out.set("WWW-Authenticate", "Basic");
          out.send("who are you?");
        }
        if (in.path() == "/fault") throw std::runtime_error("a fault");
        out.set("X-Dropped", "yes");
      };
      vigil::io::serve_limits limits;
      int errors = 0;
      limits.on_error = [&](std::exception_ptr) { ++errors; };
      site s(
          how,
          [&](const web::request& in, web::response& out, const auto&) {
            ++answered;
            out.send(in.body());
          },
          limits);
      const auto ask = [&](std::string_view path, std::string_view fields) {
        auto c = s.connect();
        c.send(post_of(fields, "", path));
        const auto a = c.receive();
        CHECK(a["Connection"] == "close");
        CHECK(c.is_closed());
        return a;
      };
      for (const std::string expect : {"Expect: 100-continue\r\n", ""}) {
        for (const std::string length :
             {"Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"}) {
          CHECK(ask("/silent", expect + length).result_int() == 403);
          const auto login = ask("/login", expect + length);
          CHECK(login.result_int() == 401);
          CHECK(login["WWW-Authenticate"] == "Basic");
          CHECK(login.body() == "who are you?");
          CHECK(ask("/fault", expect + length).result_int() == 500);
        }
      }
      vigil::testing::settle();
      CHECK(errors == 4);
      CHECK(answered == 0);

      // One that it lets pass, and requests without a body, for which it is not called.
      auto c = s.connect();
      c.send(post_of("Expect: 100-continue\r\nContent-Length: 3\r\n", ""));
      CHECK(c.receive().result_int() == 100);
      c.send("abc");
      const auto passed = c.receive();
      CHECK(passed.body() == "abc");
      CHECK(passed["X-Dropped"] == "");
      c.get("/silent");
      CHECK(c.receive().result_int() == 200);
      CHECK(answered == 2);
    });
  }

  TEST_CASE("before_body may take its time, and the body that came meanwhile is whole") {
    in_virtual([] {
      web::options how;
      how.before_body = [](const auto&, auto&, const vigil::context& ctx) {
        vigil::sleep_for(20s, ctx);  // longer than a header may take
      };
      site s(how);
      auto c = s.connect();
      const std::string body(100'000, 'x');
      c.send(post_of("Content-Length: 100000\r\n", body));
      CHECK(c.receive().body() == body);
      c.send(post_of("Content-Length: 3\r\n", "abc"));
      CHECK(c.receive().body() == "abc");
    });
  }

  TEST_CASE("earlier answers are sent before an early refusal") {
    in_virtual([] {
      web::options how;
      how.before_body = web::check_method;
      site s(how);
      auto c = s.connect();
      c.get("/hello", "X: 1\r\n");
      c.send(post_of("Content-Length: 3\r\n", "", "/hello"));
      CHECK(c.receive().body() == "hello, world\n");
      CHECK(c.receive()["Allow"] == "GET, HEAD");
      CHECK(c.is_closed());
    });
  }

  TEST_CASE("a client that sends all before it reads gets its 413, however much that is") {
    in_virtual([] {
      site s;
      auto c = s.connect();
      const std::string body(std::size_t{12} << 20, 'x');
      c.send(post_of("Content-Length: " + std::to_string(body.size()) + "\r\n", body));
      CHECK(c.receive().result_int() == 413);
      CHECK(c.is_closed());
    });
  }

  TEST_CASE("after a refusal it reads on until the client is silent, or has had a body's time") {
    in_virtual([] {
      site s;
      auto silent = s.connect();
      silent.send(post_of(too_large, "x"));
      CHECK(silent.receive().result_int() == 413);
      CHECK(silent.reads_end());  // told at once that this was all
      const auto start = vigil::clock::now();
      const auto time_to_end = [&] {
        while (s.server().connections() != 0)
          vigil::sleep_for(1ms);
        return since(start);
      };
      const auto silence = time_to_end();
      CHECK(silence >= 500ms);
      CHECK(silence < 510ms);
    });
    in_virtual([] {
      site s;
      auto drips = s.connect();
      drips.send(post_of(too_large, "x"));
      CHECK(drips.receive().result_int() == 413);
      const auto start = vigil::clock::now();
      const std::size_t sent = drip(drips, std::string(1000, 'x'), 100ms);
      CHECK(sent >= 300);
      CHECK(since(start) >= 30s);
      CHECK(since(start) < 31s);
      CHECK(s.server().connections() == 0);
    });
  }
}
