// How examples/io/http_server reads targets, Host and Transfer-Encoding.
#include "io/http_test.hpp"

using namespace vigil::http_testing;

namespace {

// A server that answers with its understanding of the request.
site told_site() {
  return site({}, [](const web::request& in, web::response& out, const auto&) {
    out.send(std::string(in.host()) + " " + std::string(in.path()) + " " + std::string(in.query()));
  });
}

std::string with_host(std::string_view host) {
  return "GET /hello HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n";
}

}  // namespace

TEST_SUITE("http server: forms of requests") {
  TEST_CASE("HTTP/1.0 with Transfer-Encoding gets 400, and nothing after it is read as a request") {
    in_virtual([] {
      site s;
      const std::string hidden = "0\r\n\r\nGET /hello HTTP/1.1\r\nHost: test\r\n\r\n";
      for (const std::string fields : {"Transfer-Encoding: chunked\r\n",
                                       "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n",
                                       "Transfer-Encoding: identity\r\n",
                                       "Transfer-Encoding:\r\n"}) {
        const std::string text = request_of(fields, "POST /echo HTTP/1.0") + hidden;
        CHECK_MESSAGE(refused(s, text) == 400, fields);
      }
      CHECK(s.server().served() == 0);
    });
  }

  TEST_CASE("a body with a coding beside its chunks gets 501, one that is chunked twice 400") {
    in_virtual([] {
      site s;
      const auto post = [&](std::string_view fields) {
        return refused(s, request_of(fields, "POST /echo HTTP/1.1") + "1\r\nx\r\n0\r\n\r\n");
      };
      CHECK(post("Transfer-Encoding: gzip, chunked\r\n") == 501);
      CHECK(post("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n") == 501);
      CHECK(post("Transfer-Encoding: gzip\r\n") == 501);
      CHECK(post("Transfer-Encoding: identity\r\n") == 501);
      CHECK(post("Transfer-Encoding: chunked;q=1\r\n") == 501);
      CHECK(post("Transfer-Encoding: chunked, chunked\r\n") == 400);
      CHECK(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: Chunked\r\n") == 400);
      // In capitals or not, and beside empty members of the list.
      for (const std::string coding : {"Chunked", ", chunked", "chunked ,"}) {
        const std::string fields = "Transfer-Encoding: " + coding + "\r\n";
        CHECK(s.ask(request_of(fields, "POST /echo HTTP/1.1") + "1\r\nx\r\n0\r\n\r\n").body() ==
              "x");
      }
    });
  }

  TEST_CASE("an invalid Host gets 400") {
    in_virtual([] {
      site s;
      for (const std::string bad : {"a b",  "a/b",       "a,b",   "user@a",  "http://a",
                                    "a:b",  "a:80:81",   "a:-1",  "a:65536", "a?b",
                                    "a#b",  "a\\b",      "\"a\"", "a%",      "a%2",
                                    "a%zz", "::1",       "[::1",  "[::1]a",  "[]",
                                    "[a]",  "[1.2.3.4]", "a\xff", "[::1%a]", "[fe80::1%lo]:80"}) {
        const bool is_a_list = bad == "a,b";  // a sub-delimiter, which a name may contain
        CHECK_MESSAGE(s.ask(with_host(bad)).result_int() == (is_a_list ? 200 : 400), bad);
      }
      for (const std::string good : {"a",
                                     "",
                                     "a:80",
                                     "a:",
                                     "a.example.:8080",
                                     "127.0.0.1:1",
                                     "[::1]",
                                     "[::ffff:1.2.3.4]:80",
                                     "a%20b",
                                     "x_y-z~"}) {
        CHECK_MESSAGE(s.ask(with_host(good)).result_int() == 200, good);
      }
      CHECK(refused(s, "GET /hello HTTP/1.0\r\nHost: a/b\r\n\r\n") == 400);
      CHECK(refused(s, with_host("a b") + with_host("a")) == 400);
    });
  }

  TEST_CASE("the pages of the site are found by their paths, whatever the query") {
    in_virtual([] {
      site s;
      CHECK(s.ask(request_of("", "GET /hello?a=b HTTP/1.1")).result_int() == 200);
      CHECK(s.ask(request_of("", "GET /? HTTP/1.1")).result_int() == 200);
      CHECK(s.ask(request_of("", "GET /hello/ HTTP/1.1")).result_int() == 404);
      CHECK(s.ask(request_of("", "GET http://test/hello?a HTTP/1.1")).result_int() == 200);
      CHECK(s.ask(request_of("", "GET HTTP://test HTTP/1.1")).result_int() == 200);
      CHECK(s.ask(request_of("", "OPTIONS * HTTP/1.1")).result_int() == 405);
      CHECK(s.ask(request_of("", "CONNECT test:80 HTTP/1.1")).result_int() == 405);
      CHECK(s.ask(request_of("", "CONNECT [::1]:80 HTTP/1.1")).result_int() == 405);
      const auto echo = "POST http://test/echo?x HTTP/1.1";
      CHECK(s.ask(request_of("Content-Length: 1\r\n", echo) + "x").body() == "x");
    });
  }

  TEST_CASE("a target is a path and a query, or has a host of its own, which counts") {
    in_virtual([] {
      site s = told_site();
      const auto told = [&](std::string_view target, std::string_view method = "GET") {
        const std::string line = std::string(method) + " " + std::string(target) + " HTTP/1.1";
        return s.ask(request_of("", line)).body();
      };
      CHECK(told("/a/b") == "test /a/b ");
      CHECK(told("/a?b=c&d?e") == "test /a b=c&d?e");
      CHECK(told("//a") == "test //a ");
      CHECK(told("/a%20b?%3F") == "test /a%20b %3F");
      CHECK(told("http://other:81/a?b") == "other:81 /a b");
      CHECK(told("https://[::1]/a") == "[::1] /a ");
      CHECK(told("hTTp://other") == "other / ");
      CHECK(told("http://other?b") == "other / b");
      CHECK(told("/http://other/") == "test /http://other/ ");
      CHECK(told("*", "OPTIONS") == "test * ");
      CHECK(told("other:443", "CONNECT") == "other:443  ");
      CHECK(s.ask("GET / HTTP/1.0\r\n\r\n").body() == " / ");
    });
  }

  TEST_CASE("a target of no known form gets 400") {
    in_virtual([] {
      site s;
      const auto get = [&](std::string_view target, std::string_view method = "GET") {
        return refused(
            s, request_of("", std::string(method) + " " + std::string(target) + " HTTP/1.1"));
      };
      CHECK(get("hello") == 400);
      CHECK(get("?a") == 400);
      CHECK(get("*") == 400);
      CHECK(get("test:80") == 400);
      CHECK(get("ftp://test/hello") == 400);
      CHECK(get("http:/hello") == 400);
      CHECK(get("http:///hello") == 400);
      CHECK(get("http://a@test/hello") == 400);
      CHECK(get("http://test:x/hello") == 400);
      CHECK(get("http://:80/hello") == 400);
      CHECK(get("http://[::1%lo]/hello") == 400);
      CHECK(get("test", "CONNECT") == 400);
      CHECK(get(":80", "CONNECT") == 400);
      CHECK(get("[::1]", "CONNECT") == 400);
      CHECK(get("/hello", "CONNECT") == 400);
    });
  }

  TEST_CASE("a request line longer than a header may be gets 414") {
    in_virtual([] {
      web::options how;
      how.header_bytes = 1000;
      site s(how);
      const auto line_of = [](std::size_t size) {
        const std::string text = "GET / HTTP/1.1";
        return "GET /" + std::string(size - text.size(), 'x') + " HTTP/1.1";
      };
      CHECK(refused(s, request_of("", line_of(5000))) == 414);
      CHECK(refused(s, request_of("", line_of(999))) == 414);
      CHECK(refused(s, request_of("", line_of(998))) == 431);  // a line, but no room for Host
      CHECK(refused(s, line_of(50'000).substr(0, 40'000)) == 414);
      // Byte by byte the answer is the same.
      auto c = s.connect();
      auto reader = vigil::spawn([&] { return c.receive().result_int(); });
      drip(c, line_of(5000), 1us);
      CHECK(reader.join() == 414);
      CHECK(s.ask(request_of("X: " + std::string(5000, 'x') + "\r\n")).result_int() == 431);
      CHECK(s.ask(request_of("", line_of(900))).result_int() == 404);
    });
  }

  TEST_CASE("an overlong method, for which a header has no room, gets 501") {
    in_virtual([] {
      web::options how;
      how.header_bytes = 1000;
      site s(how);
      const std::string method(5000, 'M');
      CHECK(refused(s, request_of("", method + " / HTTP/1.1")) == 501);
      CHECK(refused(s, method) == 501);  // even though the method has no end
      CHECK(refused(s, "OPTIONS /" + std::string(5000, 'x')) == 414);
    });
  }
}
