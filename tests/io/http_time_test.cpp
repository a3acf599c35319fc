// The times of examples/io/http_server, at exact moments: idle connections, slow clients,
// the Date header, the stop.
#include "io/http_test.hpp"

#include <vector>

#include <boost/asio/read.hpp>

using namespace vigil::http_testing;

TEST_SUITE("http server: time") {
  // Node, libuv: an idle connection is closed after its time; the advertised one
  // is in whole seconds and less; the user's own header wins.
  TEST_CASE("a silent connection is closed after its idle time, from the last answer on") {
    for_each_seed(5, [] {
      site s;
      auto c = s.connect();
      CHECK(time_to_close(c) == 120s);
      auto d = s.connect();
      for (int i = 0; i < 3; ++i) {
        vigil::sleep_for(119s);
        d.send(hello);
        CHECK(d.receive().result_int() == 200);
      }
      CHECK(time_to_close(d) == 120s);
      auto e = s.connect();
      e.get("/count");  // the answer takes 400 ms
      CHECK(e.receive().result_int() == 200);
      CHECK(time_to_close(e) == 120s);
    });
  }

  TEST_CASE("an answer that takes longer than the idle time is not cut") {
    in_virtual([] {
      const auto slow = [](const web::request&, web::response& out, const vigil::context& ctx) {
        vigil::sleep_for(301s, ctx);
        out.send("x");
      };
      site s({}, slow);
      auto c = s.connect();
      for (int i = 0; i < 2; ++i) {
        c.send(hello);
        CHECK(c.receive().result_int() == 200);
      }
      CHECK(time_to_close(c) == 120s);
    });
  }

  TEST_CASE("a request at the very end of the idle time is answered or was never accepted") {
    int answered = 0;
    for_each_seed(200, [&] {
      site s;
      auto c = s.connect();
      vigil::sleep_for(120s);
      error_code error;
      boost::asio::write(c.stream(), asio::buffer(hello.data(), hello.size()), error);
      if (!error) error = error_of([&] { CHECK(c.receive().result_int() == 200); });
      if (!error) {
        ++answered;
        CHECK(time_to_close(c) == 120s);
      }
      auto d = s.connect();
      vigil::sleep_for(120s - 1ns);
      d.send(hello);
      CHECK(d.receive().result_int() == 200);
    });
    CHECK(answered > 0);
  }

  TEST_CASE("empty lines before a request do not begin the idle time anew") {
    for_each_seed(5, [] {
      const auto time_of = [](std::chrono::nanoseconds pause) {
        site s;
        auto c = s.connect();
        const auto start = clock::now();
        auto writer = vigil::spawn([&] { return drip(c, std::string(3000, '\n'), pause); });
        CHECK(c.is_closed());
        const auto time = since(start);
        CHECK(writer.join() < 3000);
        return time;
      };
      CHECK(time_of(119s) == 120s);
      CHECK(time_of(100ms) == 120s);
      CHECK(time_of(60s) == 120s);
      // Nor does it last longer for a stop.
      web::options how;
      how.keeps_idle = [] { return true; };
      site s(how);
      auto c = s.connect();
      auto writer = vigil::spawn([&] { return drip(c, std::string(3000, '\n'), 1s); });
      vigil::sleep_for(300500ms);
      const auto start = clock::now();
      s.stop();
      CHECK(c.is_closed());
      CHECK(since(start) == 0s);
      CHECK(writer.join() < 3000);
    });
  }

  TEST_CASE("an empty line after a body takes nothing from the next request's time") {
    in_virtual([] {
      site s;
      auto c = s.connect();
      for (int i = 0; i < 3; ++i) {
        c.send("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx\r\n");
        CHECK(c.receive().body() == "x");
        vigil::sleep_for(60s);
        c.send("\r\n");
        vigil::sleep_for(59s);
      }
      const auto start = clock::now();
      c.send("\r\nG");
      CHECK(c.receive().result_int() == 408);
      CHECK(since(start) == 10s);
    });
  }

  // Node, libuv: an idle connection is closed after its time; the advertised one
  // is in whole seconds and less; the user's own header wins.
  TEST_CASE("it never promises to keep a connection longer than it does") {
    in_virtual([] {
      const auto promised = [](std::chrono::nanoseconds idle,
                               std::chrono::nanoseconds margin,
                               std::string_view path = "/hello") {
        web::options how;
        how.idle = idle;
        how.idle_margin = margin;
        how.tells_idle = true;
        const auto own = [](const web::request& in, web::response& out, const auto&) {
          if (in.target() == "/own") out.set("keep-alive", "timeout=1, max=5");
        };
        site s(how, own);
        auto c = s.connect();
        c.get(path);
        const std::string field(c.receive()["Keep-Alive"]);
        CHECK(time_to_close(c) == idle);
        return field;
      };
      CHECK(promised(120s, 1s) == "timeout=119");
      CHECK(promised(120s, 0s) == "timeout=120");
      CHECK(promised(5999ms, 1s) == "timeout=4");
      CHECK(promised(2s, 1s) == "timeout=1");
      CHECK(promised(1300ms, 1s) == "");
      CHECK(promised(120s, 1s, "/own") == "timeout=1, max=5");
      site s;
      CHECK(s.ask(hello)["Keep-Alive"] == "");
    });
  }

  // Node, libuv: half a header: 408 and close; time between requests does not
  // count.
  TEST_CASE("half a header gets 408 when its time is over, however the bytes drip") {
    for_each_seed(3, [] {
      site s;
      auto c = s.connect();
      c.send(hello);
      CHECK(c.receive().result_int() == 200);
      vigil::sleep_for(100s);  // does not count
      auto start = clock::now();
      c.send("G");
      CHECK(c.receive().result_int() == 408);
      CHECK(since(start) == 10s);
      CHECK(time_to_close(c) == 0s);

      auto d = s.connect();
      start = clock::now();
      auto reader = vigil::spawn([&] {
        CHECK(d.receive().result_int() == 408);
        CHECK(since(start) == 10s);
        CHECK(d.is_closed());
      });
      const std::string many = "GET /hello HTTP/1.1\r\nX: " + std::string(100, 'x');
      CHECK(drip(d, many, 700ms) == 15);  // the last at 9.8 s; 10.5 s is too late
      reader.join();
    });
  }

  // Node, libuv: half a header: 408 and close; time between requests does not
  // count.
  TEST_CASE("a body that drips gets 408 when its time is over, which begins with the body") {
    for_each_seed(3, [] {
      site s;
      auto c = s.connect();
      c.send("POST /echo HTTP/1.1\r\nHost: test\r\n");
      vigil::sleep_for(9s);
      c.send("Content-Length: 100\r\n\r\n");
      const auto start = clock::now();
      auto reader = vigil::spawn([&] {
        CHECK(c.receive().result_int() == 408);
        CHECK(since(start) == 30s);
        CHECK(c.is_closed());
      });
      CHECK(drip(c, std::string(100, 'x'), 7s) == 5);
      reader.join();
      // Slow, but in time.
      auto d = s.connect();
      d.send("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\n");
      CHECK(drip(d, "hello", 7s) == 5);
      CHECK(d.receive().body() == "hello");
      CHECK(time_to_close(d) == 120s);
    });
  }

  // Node, libuv: half a header: 408 and close; time between requests does not
  // count.
  TEST_CASE("the time of one request does not count for the next") {
    in_virtual([] {
      site s;
      auto c = s.connect();
      for (int i = 0; i < 5; ++i) {
        c.send(hello.substr(0, 20));
        vigil::sleep_for(9s);
        c.send(hello.substr(20));
        CHECK(c.receive().result_int() == 200);
      }
      // Half of the next request comes with this one: its time begins when this is
      // answered.
      c.send(std::string(hello) + "GET");
      CHECK(c.receive().result_int() == 200);
      const auto start = clock::now();
      CHECK(c.receive().result_int() == 408);
      CHECK(since(start) == 10s);
    });
  }

  TEST_CASE("a client that does not take its answer is cut") {
    in_virtual([] {
      const auto large = [](const web::request&, web::response& out, const vigil::context&) {
        out.send(std::string(1 << 20, 'x'));
      };
      site s({}, large);
      auto c = s.connect();
      c.send(hello);
      const auto start = clock::now();
      do {
        vigil::sleep_for(1s);
      } while (s.server().connections() != 0);
      // The pipe takes 64 KiB, which is not all of the head and the first piece.
      CHECK(since(start) >= 30s);
      CHECK(since(start) <= 31s);
      // A client that takes 64 KiB each 29 seconds gets all of it.
      auto d = s.connect();
      d.send(hello);
      std::size_t n = 0;
      std::vector<char> part(64 << 10);
      error_code error;
      while (n < (1 << 20)) {
        vigil::sleep_for(29s);
        n += asio::read(d.stream(), asio::buffer(part), asio::transfer_at_least(1), error);
        if (error) break;
      }
      CHECK(n >= (1 << 20));
    });
  }

  // Node, libuv: Date cached till the next full second, never stale.
  TEST_CASE("Date is built once a second at most, and never that of a second ago") {
    in_virtual([] {
      web::options how;
      how.wall = [] { return clock::now().time_since_epoch() / 1s; };
      site s(how);
      vigil::sleep_for(1ms);
      const auto date_now = [&] { return std::string(s.ask(hello)["Date"]); };
      CHECK(date_now() == "Sat, 01 Jan 2000 00:00:00 GMT");
      vigil::sleep_for(999ms - 1ns);
      CHECK(date_now() == "Sat, 01 Jan 2000 00:00:00 GMT");
      CHECK(s.server().date().built() == 1);
      vigil::sleep_for(1ns);
      CHECK(date_now() == "Sat, 01 Jan 2000 00:00:01 GMT");
      for (int i = 0; i < 999; ++i) {
        vigil::sleep_for(1ms);
        CHECK(date_now() == "Sat, 01 Jan 2000 00:00:01 GMT");
      }
      CHECK(s.server().date().built() == 2);
      vigil::sleep_for(86'400s);
      CHECK(s.server().date().built() == 2);  // nobody asked
      CHECK(date_now() == "Sun, 02 Jan 2000 00:00:01 GMT");
      vigil::sleep_for(59 * 86'400s - 2s);
      CHECK(date_now() == "Tue, 29 Feb 2000 23:59:59 GMT");
    });
  }

  // Node, libuv: Date cached till the next full second, never stale.
  TEST_CASE("Date follows a wall clock that is set back") {
    in_virtual([] {
      std::time_t wall = 1'000'000'000;
      web::options how;
      how.wall = [&] { return wall; };
      site s(how);
      CHECK(s.ask(hello)["Date"] == "Sun, 09 Sep 2001 01:46:40 GMT");
      wall -= 3600;
      CHECK(s.ask(hello)["Date"] == "Sun, 09 Sep 2001 00:46:40 GMT");
    });
  }

  // Node, libuv: no checker without listen, none after close, never two.
  TEST_CASE("no timer without connections, one for any number of idle ones") {
    in_virtual([] {
      site s;
      vigil::sleep_for(1s);
      CHECK(vigil::stats().timers_pending == 0);
      {
        std::vector<memory_client> many;
        for (int i = 0; i < 1000; ++i) {
          many.push_back(s.connect());
          many.back().send(hello);
          CHECK(many.back().receive().result_int() == 200);
        }
        vigil::sleep_for(1s);
        CHECK(vigil::stats().timers_pending == 1);
        CHECK(s.server().connections() == 1000);
      }
      vigil::sleep_for(1s);
      CHECK(s.server().connections() == 0);
      CHECK(vigil::stats().timers_pending <= 1);  // that of an empty list
      vigil::sleep_for(121s);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("a server is made on a fiber") {
    CHECK_THROWS_AS(web::server(web::answer_site, {}), vigil::wrong_place);
  }

  // Node, libuv: headers ≤ request (timeouts-validation).
  TEST_CASE("durations of zero and tiny headers are refused") {
    in_virtual([] {
      const auto refuses = [](auto change) {
        web::options how;
        change(how);
        CHECK_THROWS_AS(web::server(web::answer_site, how), std::invalid_argument);
      };
      refuses([](auto& o) { o.idle = 0s; });
      refuses([](auto& o) { o.header = -1s; });
      refuses([](auto& o) { o.body = 0s; });
      refuses([](auto& o) { o.write = 0s; });
      refuses([](auto& o) { o.linger = 0s; });
      refuses([](auto& o) { o.header_bytes = 255; });
      // Endless times are accepted.
      web::options how;
      how.idle = how.header = how.body = how.write = std::chrono::nanoseconds::max();
      site s(how);
      auto c = s.connect();
      vigil::sleep_for(24h * 365);
      c.send(hello);
      CHECK(c.receive().result_int() == 200);
    });
  }
}
