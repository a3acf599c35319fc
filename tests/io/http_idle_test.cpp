// Before examples/io/http_server cuts an idle connection it asks the last request's
// handler, then the connection's, then the server's (web::idle_handler).
#include "io/http_test.hpp"

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace vigil::http_testing;

namespace {

// Notes who is asked, and answers for each: 'r' the request's, 'c' the connection's, 's'
// the server's.
class askers {
 public:
  std::optional<bool> request;
  std::optional<bool> connection;
  std::optional<bool> server;

  web::idle_handler asker(char name, const std::optional<bool>& answer) {
    return [this, name, &answer] {
      log_ += name;
      return answer;
    };
  }

  web::options options() {
    web::options how;
    how.keeps_idle = asker('s', server);
    return how;
  }

  // /hello sets nothing, /r and /c one handler, /rc both.
  web::handler handler() {
    return [this](const web::request& in, web::response& out, const vigil::context&) {
      if (in.path().starts_with("/r")) out.keeps_idle = asker('r', request);
      if (in.path().ends_with("c")) out.set_connection_keeps_idle(asker('c', connection));
      if (in.path() == "/none") out.set_connection_keeps_idle({});
      out.send("x");
    };
  }

  std::string log() { return std::exchange(log_, {}); }

 private:
  std::string log_;
};

void ask_for(memory_client& c, std::string_view path) {
  c.get(path);
  CHECK(c.receive().body() == "x");
}

}  // namespace

TEST_SUITE("http server: idle handlers") {
  // Node, libuv: on timeout ask the request, the response, the server, and without an
  // answer close (test-http-set-timeout-server).
  TEST_CASE(
      "the request's is asked first, then the connection's, then the server's, then it ends") {
    for_each_seed(3, [] {
      askers a;
      site s(a.options(), a.handler());
      auto c = s.connect();
      ask_for(c, "/rc");
      CHECK(time_to_close(c) == 120s);
      CHECK(a.log() == "rcs");
    });
  }

  TEST_CASE("without any handler nobody answers") {
    in_virtual([] {
      askers a;
      site s({}, a.handler());
      auto c = s.connect();
      ask_for(c, "/hello");
      CHECK(time_to_close(c) == 120s);
    });
  }

  TEST_CASE("the first that answers decides, and the next are not asked") {
    in_virtual([] {
      askers a;
      site s(a.options(), a.handler());
      const auto time_of = [&](std::string_view path) {
        auto c = s.connect();
        ask_for(c, path);
        return time_to_close(c);
      };
      a.request = false;
      a.connection = a.server = true;
      CHECK(time_of("/rc") == 120s);
      CHECK(a.log() == "r");
      a.request = {};
      a.connection = false;
      CHECK(time_of("/rc") == 120s);
      CHECK(a.log() == "rc");
      CHECK(time_of("/c") == 120s);
      CHECK(a.log() == "c");
      a.server = false;
      CHECK(time_of("/r") == 120s);
      CHECK(a.log() == "rs");
    });
  }

  TEST_CASE("true keeps the connection for as long again, whoever says it") {
    in_virtual([] {
      askers a;
      site s(a.options(), a.handler());
      for (std::optional<bool>* answer : {&a.request, &a.connection, &a.server}) {
        *answer = true;
        auto c = s.connect();
        ask_for(c, "/rc");
        vigil::sleep_for(250s);
        *answer = {};
        CHECK(time_to_close(c) == 110s);
      }
      CHECK(a.log() ==
            "rr"
            "rcs"
            "rcrc"
            "rcs"
            "rcsrcs"
            "rcs");
    });
  }

  TEST_CASE("the request's goes with the next request, the connection's stays until replaced") {
    in_virtual([] {
      askers a;
      a.server = true;
      site s(a.options(), a.handler());
      auto c = s.connect();
      ask_for(c, "/rc");
      vigil::sleep_for(130s);
      CHECK(a.log() == "rcs");
      ask_for(c, "/hello");
      vigil::sleep_for(130s);
      CHECK(a.log() == "cs");
      ask_for(c, "/r");
      vigil::sleep_for(130s);
      CHECK(a.log() == "rcs");
      ask_for(c, "/none");
      vigil::sleep_for(130s);
      CHECK(a.log() == "s");
    });
  }

  TEST_CASE("of requests that come together the last one's is asked") {
    in_virtual([] {
      askers a;
      site s(a.options(), a.handler());
      auto c = s.connect();
      c.get("/rc");
      c.get("/hello");
      c.get("/r");
      for (int i = 0; i < 3; ++i)
        CHECK(c.receive().body() == "x");
      CHECK(time_to_close(c) == 120s);
      CHECK(a.log() == "rcs");
      auto d = s.connect();
      d.get("/r");
      d.get("/hello");
      for (int i = 0; i < 2; ++i)
        CHECK(d.receive().body() == "x");
      CHECK(time_to_close(d) == 120s);
      CHECK(a.log() == "s");
    });
  }

  TEST_CASE("handlers belong to their connection, and die with it or with the next request") {
    in_virtual([] {
      auto token = std::make_shared<int>(0);
      const auto answer = [&token](const web::request& in, web::response& out, const auto&) {
        if (in.path() == "/r") out.keeps_idle = [token] { return ++*token < 3; };
        if (in.path() == "/c") out.set_connection_keeps_idle([token] { return true; });
        out.send("x");
      };
      site s({}, answer);
      auto c = s.connect();
      ask_for(c, "/r");
      auto d = s.connect();
      ask_for(d, "/r");
      CHECK(token.use_count() == 3);
      ask_for(d, "/hello");
      CHECK(token.use_count() == 2);
      CHECK(time_to_close(d) == 120s);
      vigil::testing::settle();
      CHECK(*token == 1);
      CHECK(time_to_close(c) == 240s);
      vigil::testing::settle();
      CHECK(token.use_count() == 1);
      auto e = s.connect();
      ask_for(e, "/c");
      CHECK(token.use_count() == 2);
      s.stop();
      CHECK(e.is_closed());
      s.join();
      CHECK(token.use_count() == 1);
    });
  }

  // Node, libuv: on timeout ask the user; if nobody answers, close.
  TEST_CASE("the server's decides whether a connection that never asked for anything goes on") {
    in_virtual([] {
      int asked = 0;
      web::options how;
      how.keeps_idle = [&] { return ++asked < 3; };
      site s(how);
      auto c = s.connect();
      CHECK(time_to_close(c) == 360s);
      CHECK(asked == 3);
    });
  }

  TEST_CASE("they are asked once for each idle time, whatever empty lines come") {
    in_virtual([] {
      askers a;
      a.server = true;
      site s(a.options(), a.handler());
      {
        auto c = s.connect();
        CHECK(drip(c, std::string(300, '\n'), 1s) == 300);
        CHECK(a.log() == "ss");
      }
      vigil::sleep_for(1s);
      auto d = s.connect();
      ask_for(d, "/rc");
      vigil::sleep_for(130s);
      d.send("\r\n");
      vigil::sleep_for(100s);
      CHECK(a.log() == "rcs");
      vigil::sleep_for(50s);
      CHECK(a.log() == "rcs");
    });
  }

  TEST_CASE("a handler may wait, and what comes meanwhile is answered") {
    for_each_seed(5, [] {
      askers a;
      const auto slow = [](const web::request&, web::response& out, const vigil::context&) {
        out.keeps_idle = [] {
          vigil::sleep_for(10s);
          return true;
        };
        out.send("x");
      };
      site s({}, slow);
      auto c = s.connect();
      ask_for(c, "/");
      vigil::sleep_for(125s);
      const auto start = clock::now();
      ask_for(c, "/");
      CHECK(since(start) == 5s);
    });
  }

  TEST_CASE("an exception of one closes the connection and goes to on_error") {
    in_virtual([] {
      int errors = 0;
      vigil::io::serve_limits limits;
      limits.on_error = [&errors](std::exception_ptr) { ++errors; };
      const auto answer = [](const web::request&, web::response& out, const vigil::context&) {
        out.keeps_idle = []() -> std::optional<bool> { throw std::runtime_error("x"); };
        out.send("x");
      };
      site s({}, answer, limits);
      auto c = s.connect();
      ask_for(c, "/");
      CHECK(time_to_close(c) == 120s);
      CHECK(errors == 1);
    });
  }
}
