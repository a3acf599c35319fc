// How examples/io/http_server treats its handlers: exceptions, and fields that they set.
#include "http_server/parser.hpp"
#include "io/http_test.hpp"

#include <stdexcept>
#include <vector>

using namespace vigil::http_testing;

TEST_SUITE("http server") {
  TEST_CASE("an exception in a handler is a 500 and ends its connection only") {
    in_virtual([] {
      int reported = 0;
      vigil::io::serve_limits limits;
      limits.on_error = [&](const std::exception_ptr&) { ++reported; };
      const auto failing = [](const web::request& in, web::response& out, const auto&) {
        if (in.target() == "/part") out.write("part");
        if (in.target() != "/hello") throw std::runtime_error("on purpose");
        out.send("hello");
      };
      site s({}, failing, limits);
      auto good = s.connect();
      auto bad = s.connect();
      bad.get("/bad");
      CHECK(bad.receive().result_int() == 500);
      CHECK(bad.is_closed());
      auto partly = s.connect();
      partly.get("/part");
      CHECK(error_of([&] { partly.receive(); }) == web::http::error::partial_message);
      good.get("/hello");
      CHECK(good.receive().body() == "hello");
      vigil::testing::settle();
      CHECK(reported == 2);
    });
  }

  TEST_CASE("earlier answers are sent although a pipelined request after them fails") {
    in_virtual([] {
      const auto failing = [](const web::request& in, web::response& out, const auto& ctx) {
        if (in.target() == "/hello") return out.send("hello");
        if (in.target() == "/part") out.write("part");
        if (in.target() == "/cancelled") {
          const auto own = vigil::with_cancel(ctx);
          own.cancel();
          vigil::sleep_for(1s, own.ctx);
        }
        if (in.target() != "/part") out.send("dropped, since the handler does not return");
        throw std::runtime_error("on purpose");
      };
      std::size_t reported = 0;
      vigil::io::serve_limits limits;
      limits.on_error = [&](const std::exception_ptr&) { ++reported; };
      site s({}, failing, limits);
      const auto ask = [&](const std::string& target) {
        auto c = s.connect();
        c.send(std::string(hello) + request_of("", "GET " + target + " HTTP/1.1"));
        CHECK(c.receive().body() == "hello");
        return c;
      };
      auto sent = ask("/sent");
      CHECK(sent.receive().result_int() == 500);
      CHECK(sent.is_closed());
      auto cancelled = ask("/cancelled");
      CHECK(cancelled.is_closed());
      auto part = ask("/part");
      CHECK(error_of([&] { part.receive(); }) == web::http::error::partial_message);
      CHECK(refused(s, request_of("", "GET /sent HTTP/1.1")) == 500);
      vigil::testing::settle();
      CHECK(reported == 3);
    });
  }

  TEST_CASE("a handler's exception is reported even when its client has gone, whatever its type") {
    for_each_seed(3, [] {
      std::vector<std::string> told;
      vigil::io::serve_limits limits;
      limits.on_error = [&](const std::exception_ptr& error) {
        try {
          std::rethrow_exception(error);
        } catch (const std::runtime_error& e) {
          told.push_back(e.what());
        } catch (int n) {
          told.push_back(std::to_string(n));
        }
      };
      const auto failing = [](const web::request& in, web::response&, const vigil::context&) {
        if (in.target() == "/number") throw 42;
        vigil::sleep_for(1s);  // not under the context, which ends with the client
        throw std::runtime_error("on purpose");
      };
      site s({}, failing, limits);
      s.connect().get("/late");
      vigil::sleep_for(2s);
      CHECK(told == std::vector<std::string>{"on purpose"});
      auto c = s.connect();
      c.get("/number");
      CHECK(c.receive().result_int() == 500);
      CHECK(c.is_closed());
      vigil::sleep_for(1s);
      CHECK(told == std::vector<std::string>{"on purpose", "42"});
    });
  }

  TEST_CASE("fields of a handler cannot begin a line of their own") {
    in_virtual([] {
      const auto answer = [](const web::request&, web::response& out, const auto&) {
        CHECK_THROWS_AS(out.set("X", "y\r\nSet-Cookie: z"), std::invalid_argument);
        CHECK_THROWS_AS(out.set("X\n", "y"), std::invalid_argument);
        CHECK_THROWS_AS(out.set("", "y"), std::invalid_argument);
        out.set("X", "y");
        out.status = 204;
        out.send("dropped");
        CHECK_THROWS_AS(out.send("twice"), std::logic_error);
        CHECK_THROWS_AS(out.write("more"), std::logic_error);
      };
      site s({}, answer);
      const auto a = s.ask(request_of(""));
      CHECK(a["X"] == "y");
      CHECK(a.count("Content-Length") == 0);
      CHECK(a.body().empty());
    });
  }
}
