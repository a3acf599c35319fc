// How examples/io/http_server treats requests, good and bad.
#include "io/http_test.hpp"

#include "http_server/parser.hpp"

#include <stdexcept>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

using namespace vigil::http_testing;

namespace {

using asio::ip::tcp;

}  // namespace

TEST_SUITE("http server") {
  // Node, libuv: keep-alive default on in 1.1, off in 1.0, header overrides.
  TEST_CASE("a connection is kept: always in 1.1, on request in 1.0, unless it says close") {
    in_virtual([] {
      site s;
      const auto keeps = [&](std::string_view version, std::string_view fields) {
        auto c = s.connect();
        c.send(request_of(fields, "GET /hello HTTP/" + std::string(version)));
        const auto first = c.receive();
        CHECK(first.result_int() == 200);
        const auto said = first["Connection"];
        const bool kept = !error_of([&] {
          c.send(request_of("Connection: close\r\n"));
          c.receive();
        });
        CHECK(said == (kept ? (version == "1.0" ? "keep-alive" : "") : "close"));
        return kept;
      };
      CHECK(keeps("1.1", ""));
      CHECK(keeps("1.1", "Connection: keep-alive\r\n"));
      CHECK(!keeps("1.1", "Connection: close\r\n"));
      CHECK(!keeps("1.1", "Connection: x, Close\r\n"));
      CHECK(!keeps("1.0", ""));
      CHECK(keeps("1.0", "Connection: keep-alive\r\n"));
      CHECK(!keeps("1.0", "Connection: close\r\n"));
      // RFC 9112, 9.3: close comes first, in either version.
      CHECK(!keeps("1.0", "Connection: keep-alive, close\r\n"));
      CHECK(!keeps("1.0", "Connection: x , CLOSE,keep-alive\r\n"));
      CHECK(!keeps("1.0", "Connection: keep-alive\r\nConnection: close\r\n"));
      CHECK(!keeps("1.1", "Connection: keep-alive, close\r\n"));
      CHECK(keeps("1.0", "Connection: keep-alive, closed\r\n"));
    });
  }

  TEST_CASE("pipelined requests are answered in their order, whatever each takes") {
    in_virtual([] {
      site s;
      auto c = s.connect();
      std::string all;
      for (int i = 0; i < 100; ++i) {
        const std::string n = std::to_string(i);
        all += post_of("Content-Length: " + std::to_string(n.size()) + "\r\n", n);
        if (i % 10 == 0) all += request_of("", "GET /count HTTP/1.1");
      }
      auto writer = vigil::spawn([&] { c.send(all); });
      for (int i = 0; i < 100; ++i) {
        CHECK(c.receive().body() == std::to_string(i));
        if (i % 10 == 0) CHECK(c.receive().body().size() == 35);
      }
      writer.join();
      CHECK(s.server().served() == 110);
    });
  }

  TEST_CASE("a request may come in any pieces") {
    in_virtual([] {
      site s;
      const std::string text = post_of("Content-Length: 3\r\n", "abc") + "\r\n" +
                               post_of("Transfer-Encoding: chunked\r\n",
                                       "2;x=y\r\nde\r\n1\r\nf\r\n0\r\nHost: other\r\n\r\n");
      for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        auto c = s.connect();
        c.send(text.substr(0, cut));
        vigil::sleep_for(1ms);
        c.send(text.substr(cut));
        CHECK(c.receive().body() == "abc");
        CHECK(c.receive().body() == "def");
      }
      auto c = s.connect();
      CHECK(drip(c, text, 1ms) == text.size());
      CHECK(c.receive().body() == "abc");
      CHECK(c.receive().body() == "def");
    });
  }

  TEST_CASE("a HEAD gets the answer of a GET without its body") {
    in_virtual([] {
      site s;
      auto c = s.connect();
      for (const std::string target : {"/", "/hello", "/missing", "/count"}) {
        c.get(target);
        auto got = c.receive();
        c.send(request_of("", "HEAD " + target + " HTTP/1.1"));
        auto head = c.receive(true);
        got.erase("Date");
        head.erase("Date");
        CHECK(head.body().empty());
        CHECK(head.result_int() == got.result_int());
        CHECK(head["Content-Type"] == got["Content-Type"]);
        CHECK(head["Content-Length"] == got["Content-Length"]);
        CHECK(head["Transfer-Encoding"] == got["Transfer-Encoding"]);
      }
    });
  }

  TEST_CASE("a stream comes part by part; an old client's ends with the connection") {
    in_virtual([] {
      site s;
      auto c = s.connect();
      const auto start = vigil::clock::now();
      c.get("/count");
      std::string text;
      char part[512];
      error_code error;
      std::size_t n = c.stream().read_some(asio::buffer(part), error);
      CHECK(std::string_view(part, n).find("\r\n7\r\nline 1\n\r\n") != std::string_view::npos);
      CHECK(since(start) == 0s);
      n = c.stream().read_some(asio::buffer(part), error);
      CHECK(std::string_view(part, n) == "7\r\nline 2\n\r\n");
      CHECK(since(start) == 100ms);

      auto old = s.connect();
      old.send("GET /count HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
      const auto a = old.receive();
      CHECK(a["Connection"] == "close");
      CHECK(a["Transfer-Encoding"] == "");
      CHECK(a.body().size() == 35);
      CHECK(old.is_closed());
    });
  }

  TEST_CASE("headers and bodies have limits, which are exact") {
    in_virtual([] {
      web::options how;
      how.header_bytes = 1000;
      how.body_bytes = 500;
      site s(how);
      const auto header_of = [](std::size_t size) {
        const std::string text = request_of("X: \r\n");
        return request_of("X: " + std::string(size - text.size(), 'x') + "\r\n");
      };
      CHECK(s.ask(header_of(1000)).result_int() == 200);
      CHECK(s.ask(header_of(1001)).result_int() == 431);
      CHECK(s.ask(header_of(50'000)).result_int() == 431);
      // Many short fields, one at a time.
      auto c = s.connect();
      std::size_t sent = 0;
      auto reader = vigil::spawn([&] {
        const unsigned status = c.receive().result_int();
        CHECK(c.is_closed());
        return status;
      });
      const error_code error = error_of([&] {
        c.send("GET /hello HTTP/1.1\r\n");
        for (; sent < 1000; ++sent) {
          c.send("X: y\r\n");
          vigil::this_fiber::yield();
          vigil::sleep_for(1us);
        }
      });
      CHECK(reader.join() == 431);
      CHECK(error);
      CHECK(sent < 200);

      const auto echo = [&](std::string_view fields, std::string_view body) {
        return s.ask(post_of(fields, body)).result_int();
      };
      CHECK(echo("Content-Length: 500\r\n", std::string(500, 'x')) == 200);
      CHECK(echo("Content-Length: 501\r\n", std::string(501, 'x')) == 413);
      CHECK(echo("Content-Length: 99999999999999999999999\r\n", "") == 400);
      const std::string part = "64\r\n" + std::string(100, 'x') + "\r\n";
      const std::string chunks = part + part + part + part + part;
      CHECK(echo("Transfer-Encoding: chunked\r\n", chunks + "0\r\n\r\n") == 200);
      CHECK(echo("Transfer-Encoding: chunked\r\n", chunks + "1\r\nx\r\n0\r\n\r\n") == 413);
      CHECK(echo("Transfer-Encoding: chunked\r\n", "1;" + std::string(2000, 'x')) == 431);
      CHECK(echo("Transfer-Encoding: chunked\r\n", "0\r\nX: " + std::string(2000, 'x')) == 431);
    });
  }

  TEST_CASE("the limit of a header counts no byte of the body that comes with it") {
    in_virtual([] {
      web::options how;
      how.header_bytes = 1000;
      site s(how);
      const std::string body(5000, 'x');
      const auto answer = s.ask(post_of("Content-Length: 5000\r\n", body));
      CHECK(answer.result_int() == 200);
      CHECK(answer.body() == body);
      CHECK(s.ask(post_of("Transfer-Encoding: chunked\r\n", "1388\r\n" + body + "\r\n0\r\n\r\n"))
                .body() == body);
      // The header comes in two parts, the second one with the body.
      auto c = s.connect();
      c.send("POST /echo HTTP/1.1\r\nHost: test\r\n");
      vigil::sleep_for(1s);
      c.send("Content-Length: 5000\r\n\r\n" + body);
      CHECK(c.receive().body() == body);
    });
  }

  TEST_CASE("a HEAD that is refused, or fails, gets no body") {
    in_virtual([] {
      web::options how;
      how.header_bytes = 1000;
      site s(how,
             [](const web::request& in, web::response& out, const vigil::context& ctx) {
               if (in.path() == "/fails") throw std::runtime_error("planted");
               web::answer_site(in, out, ctx);
             },
             {.on_error = [](std::exception_ptr) {}});
      const auto refused = [&](std::string_view text) {
        auto c = s.connect();
        c.send(text);
        const auto answer = c.receive(true);
        CHECK(answer["Content-Length"] != "0");
        CHECK(c.is_closed());  // and nothing before the end
        return answer.result_int();
      };
      const auto head_of = [](std::string_view fields, std::string_view target = "/hello") {
        return request_of(fields, "HEAD " + std::string(target) + " HTTP/1.1");
      };
      CHECK(refused("HEAD /hello HTTP/1.1\r\n\r\n") == 400);
      CHECK(refused("HEAD /hello HTTP/2.0\r\nHost: a\r\n\r\n") == 505);
      CHECK(refused(head_of("Expect: more\r\n")) == 417);
      CHECK(refused(head_of("X: " + std::string(2000, 'x') + "\r\n")) == 431);
      CHECK(refused(head_of("", "/" + std::string(2000, 'x'))) == 414);
      CHECK(refused(head_of("", "/fails")) == 500);
      CHECK(refused("HEAD /hello HT") == 408);
      CHECK(refused("HEAD /hello HTTP/1.1\r\nHost: te") == 408);
      // After a valid request, an invalid one is answered by itself.
      auto c = s.connect();
      c.send(head_of(""));
      CHECK(c.receive(true).result_int() == 200);
      c.send("nonsense\r\n\r\n");
      CHECK(c.receive().body() == "Bad Request\n");
    });
  }

  TEST_CASE("nothing is left of the request before") {
    web::request in;
    {
      web::parser p(in, 100);
      error_code error;
      const std::string text = request_of("Content-Length: 3\r\n", "PUT /a?b HTTP/1.1") + "abc";
      p.eager(true);
      CHECK(p.put(asio::buffer(text), error) == text.size());
      CHECK(in.method() == "PUT");
      CHECK(in.query() == "b");
    }
    const web::parser p(in, 100);
    CHECK(in.method().empty());
    CHECK(in.target().empty());
    CHECK(in.path().empty());
    CHECK(in.query().empty());
    CHECK(in.host().empty());
    CHECK(in.body().empty());
    CHECK(in.count("Host") == 0);
  }

  TEST_CASE("an invalid request is refused, and the connection closed") {
    in_virtual([] {
      site s;
      CHECK(refused(s, "nonsense\r\n\r\n") == 400);
      CHECK(refused(s, "\x16\x03\x01\x02\x00\x01\x00") == 400);  // TLS
      CHECK(refused(s, "GET /hello\r\n\r\n") == 400);
      CHECK(refused(s, "GET  /hello HTTP/1.1\r\n\r\n") == 400);
      CHECK(refused(s, "GET /hel\1lo HTTP/1.1\r\nHost: a\r\n\r\n") == 400);
      CHECK(refused(s, "GET /hello HTTP/1.1\r\n\r\n") == 400);  // no Host
      CHECK(refused(s, "GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n") == 400);
      CHECK(refused(s, "GET /hello HTTP/1.1\r\nHost : a\r\n\r\n") == 400);
      CHECK(refused(s, "GET /hello HTTP/1.1\r\nHost: a\r\nX\r\n\r\n") == 400);
      CHECK(refused(s, "GET /hello HTTP/1.1\r\nHost: a\nX: y\r\n\r\n") == 400);
      CHECK(refused(s, "GET /hello HTTP/2.0\r\nHost: a\r\n\r\n") == 505);
      CHECK(refused(s, "GET /hello HTTX/1.1\r\nHost: a\r\n\r\n") == 505);
      CHECK(refused(s, "GET /hello a\r\n\r\n") == 505);
      for (const std::size_t first : {8U, 13U, 14U, 15U}) {
        const std::string_view whole = "GET /hello a\r\n\r\n";
        auto c = s.connect();
        c.send(whole.substr(0, first));
        vigil::sleep_for(1s);
        c.send(whole.substr(first));
        CHECK(c.receive().result_int() == 505);
      }
      // The end of the body must not be guessed.
      CHECK(refused(s, post_of("Content-Length: x\r\n", "")) == 400);
      CHECK(refused(s, post_of("Content-Length: -1\r\n", "")) == 400);
      CHECK(refused(s, post_of("Content-Length: 1\r\nContent-Length: 2\r\n", "")) == 400);
      CHECK(refused(s, post_of("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "")) == 400);
      CHECK(refused(s, post_of("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", "")) == 400);
      CHECK(refused(s, post_of("Transfer-Encoding: chunked, gzip\r\n", "")) == 501);
      CHECK(refused(s, post_of("Transfer-Encoding: chunked\r\n", "x\r\n")) == 400);
      CHECK(refused(s, post_of("Transfer-Encoding: chunked\r\n", "1\r\nabc\r\n")) == 400);
      // The server goes on, and refuses nothing else.
      CHECK(s.ask("\r\n\r\n" + request_of("")).result_int() == 200);
      CHECK(s.ask(request_of("", "POST /hello HTTP/1.1")).result_int() == 405);
      CHECK(s.ask(request_of("", "BREW /hello HTTP/1.1")).result_int() == 405);
      CHECK(s.ask("GET /hello HTTP/1.0\r\n\r\n").result_int() == 200);
    });
  }

  TEST_CASE("a client that goes in the middle of a request is forgotten") {
    in_virtual([] {
      site s;
      const std::string text = post_of("Content-Length: 10\r\n", "abc");
      for (std::size_t n = 0; n <= text.size(); ++n) {
        auto c = s.connect();
        c.send(text.substr(0, n));
      }
      vigil::sleep_for(1ms);
      CHECK(s.server().connections() == 0);
      CHECK(s.server().served() == 0);
    });
  }

  TEST_CASE("over TCP: pages, pipelining, an early refusal that arrives, the stop") {
    in_runtime({.workers = {1, 2}}, [] {
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      web::options how;
      how.linger = how.body = 1h;  // however long the clients take
      web::server server(web::answer_site, how);
      auto [stopping, stop] = vigil::with_cancel(vigil::background());
      auto serving = vigil::spawn([&, ctx = stopping] { server.serve(ctx, acceptor); });
      const auto connect = [&] {
        tcp::socket s(vigil::io::io_context());
        s.async_connect(acceptor.local_endpoint(), vigil::io::use_fiber);
        return web::client<tcp::socket>(std::move(s));
      };
      std::vector<vigil::fiber<>> clients;
      for (int i = 0; i < 20; ++i) {
        clients.push_back(vigil::spawn([&] {
          auto c = connect();
          for (int j = 0; j < 20; ++j) {
            c.get("/hello");
            c.get("/");
            CHECK(c.receive().body() == "hello, world\n");
            CHECK(c.receive()["Content-Type"] == "text/html; charset=utf-8");
          }
        }));
      }
      for (auto& c : clients)
        c.join();
      while (server.served() < 800)  // a client may have its answer before it is counted
        vigil::sleep_for(100us);
      CHECK(server.served() == 800);

      // A close with the rest unread would be a reset, and lose the answer.
      {
        auto large = connect();
        large.send(post_of("Content-Length: 100000000\r\n", std::string(50'000, 'x')));
        CHECK(large.receive().result_int() == 413);
        // Most clients look at the answer only when they have sent everything.
        auto whole = connect();
        const std::string body(std::size_t{12} << 20, 'x');
        whole.send(post_of("Content-Length: " + std::to_string(body.size()) + "\r\n", body));
        CHECK(whole.receive().result_int() == 413);
        CHECK(whole.is_closed());
      }

      auto idle = connect();
      idle.get("/hello");
      CHECK(idle.receive().result_int() == 200);
      stop();
      CHECK(idle.is_closed());
      serving.join();
      CHECK(server.connections() == 0);
    });
  }

  TEST_CASE("over TCP: earlier answers are sent although the next handler is stopped") {
    in_runtime({.workers = {1, 2}}, [] {
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      vigil::channel<void> begun = vigil::make_channel<void>();
      const auto answer = [&](const web::request& in, web::response& out, const auto&) {
        if (in.target() == "/hello") return out.send("hello");
        out.send("dropped, since the handler does not return");
        begun.close();
        vigil::sleep_for(1h);  // until it is stopped: the grace is over at once
      };
      web::server server(answer, {});
      auto [stopping, stop] = vigil::with_cancel(vigil::background());
      auto serving =
          vigil::spawn([&, ctx = stopping] { server.serve(ctx, acceptor, {.grace = 0s}); });
      tcp::socket s(vigil::io::io_context());
      s.async_connect(acceptor.local_endpoint(), vigil::io::use_fiber);
      web::client<tcp::socket> c(std::move(s));
      c.send(std::string(hello) + request_of("", "GET /slow HTTP/1.1"));
      begun.recv();
      stop();
      CHECK(c.receive().body() == "hello");
      CHECK(c.is_closed());
      serving.join();
    });
  }
}
