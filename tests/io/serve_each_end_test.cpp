// io::serve_each: how connections end: with the server, by their client, by an exception.
#include "io/serve_each_test.hpp"
#include "support/dumped.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using namespace vigil::serve_each_testing;
using vigil::io::afterwards;
using vigil::io::memory_acceptor;
using vigil::io::serve_each;

TEST_SUITE("io::serve_each") {
  TEST_CASE("stopping closes idle connections at once, and gives requests their time") {
    for_each_seed(5, [] {
      auto go_on = vigil::make_channel<void>();
      running_server server([&](auto& peer, const vigil::context&) {
        if (peer.state().lines == 1) go_on.recv();
        return answer_line(peer);
      });
      each_client idle = server.connect();
      each_client busy = server.connect();
      std::string of_idle;
      std::string of_busy;
      say(busy, "a\n");
      CHECK(next_line(busy, of_busy) == "1 a");
      say(busy, "b\n");
      vigil::testing::settle();
      const auto start = vigil::clock::now();
      server.stop();
      CHECK(next_line(idle, of_idle) == "");
      vigil::sleep_for(3s);
      go_on.close();
      CHECK(next_line(busy, of_busy) == "2 b");
      CHECK(next_line(busy, of_busy) == "");
      server.end();
      CHECK(since(start) == 3s);
    });
  }

  TEST_CASE("after the grace a handler is asked to stop") {
    in_virtual([] {
      bool was_done = false;
      running_server server(
          [&](auto&, const vigil::context& ctx) {
            ctx.done().recv();
            was_done = true;
            return afterwards::close;
          },
          {.grace = 5s});
      each_client client = server.connect();
      say(client, "x");
      vigil::testing::settle();
      const auto start = vigil::clock::now();
      server.end();
      CHECK(since(start) == 5s);
      CHECK(was_done);
    });
  }

  TEST_CASE("an idle connection counts in limits.connections") {
    in_virtual([] {
      running_server server(answer_lines, {.connections = 1});
      auto first = std::make_unique<each_client>(server.acceptor.connect());
      each_client second = server.connect();
      std::string of_first;
      std::string of_second;
      say(*first, "a\n");
      say(second, "b\n");
      CHECK(next_line(*first, of_first) == "1 a");
      second.set_read_deadline(vigil::clock::now() + 1s);
      CHECK(next_line(second, of_second) == "");  // timed out
      second.set_read_deadline(vigil::clock::time_point::max());
      first->close();
      CHECK(next_line(second, of_second) == "1 b");
    });
  }

  TEST_CASE("a client that closes is noticed, and its connection goes") {
    for_each_seed(5, [] {
      std::atomic<int> ends{0};
      running_server server([&](auto& peer, const vigil::context&) {
        const afterwards end = answer_line(peer);
        if (end == afterwards::close) ++ends;
        return end;
      });
      {
        each_client client = server.connect();
        std::string kept;
        say(client, "a\n");
        CHECK(next_line(client, kept) == "1 a");
      }
      each_client silent = server.connect();
      silent.close();
      vigil::testing::settle();
      CHECK(ends.load() == 2);
    });
  }

  TEST_CASE("an exception ends one connection, and on_error gets it") {
    in_virtual([] {
      std::string said;
      running_server server(
          [&](auto& peer, const vigil::context&) -> afterwards {
            if (peer.state().lines == 1) throw std::runtime_error("second line");
            return answer_line(peer);
          },
          {.on_error = [&](const std::exception_ptr& e) {
            try {
              std::rethrow_exception(e);
            } catch (const std::runtime_error& what) {
              said = what.what();
            }
          }});
      each_client client = server.connect();
      each_client other = server.connect();
      std::string kept;
      std::string of_other;
      say(client, "a\n");
      CHECK(next_line(client, kept) == "1 a");
      say(client, "b\n");
      CHECK(next_line(client, kept) == "");
      CHECK(said == "second line");
      say(other, "c\n");
      CHECK(next_line(other, of_other) == "1 c");
    });
  }

  TEST_CASE("a stop of serve's fiber ends everything, with or without a fiber") {
    for_each_seed(5, [] {
      memory_acceptor acceptor;
      auto server = vigil::spawn([&] {
        serve_each<each_session>(acceptor, [](auto& peer, const vigil::context&) {
          const afterwards end = answer_line(peer);
          if (peer.state().lines == 2) vigil::make_channel<void>().recv();
          return end;
        });
      });
      each_client idle(acceptor.connect());
      each_client busy(acceptor.connect());
      std::string of_idle;
      std::string of_busy;
      say(busy, "a\nb\n");
      CHECK(next_line(busy, of_busy) == "1 a");
      CHECK(next_line(busy, of_busy) == "2 b");
      server.request_stop();
      CHECK_THROWS_AS(server.join(), vigil::cancelled);
      CHECK(next_line(idle, of_idle) == "");
      CHECK(next_line(busy, of_busy) == "");
    });
  }

  TEST_CASE("a handler may move the stream out") {
    in_virtual([] {
      for (const auto end : {afterwards::keep, afterwards::close}) {
        running_server server([&](auto& peer, const vigil::context&) {
          auto own = std::move(peer.stream());
          own.close();
          return end;
        });
        each_client client = server.connect();
        std::string kept;
        say(client, "x");
        CHECK(next_line(client, kept) == "");
      }
    });
  }

  TEST_CASE("an exception of the State's constructor ends one connection") {
    static int made = 0;

    struct sometimes {
      sometimes() {
        if (++made == 1) throw std::runtime_error("first state");
      }

      int lines = 0;
    };

    made = 0;
    in_virtual([] {
      int errors = 0;
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn([&] {
        serve_each<sometimes>(stopping.ctx,
                              acceptor,
                              answer_lines,
                              {.on_error = [&](const std::exception_ptr&) { ++errors; }});
      });
      for (const char* const expected : {"", "1 a"}) {
        each_client client(acceptor.connect());
        std::string kept;
        say(client, "a\n");
        CHECK(next_line(client, kept) == expected);
      }
      CHECK(errors == 1);
      stopping.cancel();
      server.join();
    });
  }

  TEST_CASE("what becomes ready while idle connections are closed is closed as well") {
    struct slow {
      ~slow() {
        const vigil::this_fiber::shield as_a_destructor;
        vigil::sleep_for(1s);
      }

      int lines = 0;
    };

    in_virtual([] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      auto go_on = vigil::make_channel<void>();
      auto server = vigil::spawn([&] {
        serve_each<slow>(stopping.ctx, acceptor, [&](auto& peer, const vigil::context&) {
          if (peer.state().lines == 1 && peer.input().empty()) go_on.recv();
          return answer_line(peer);
        });
      });
      each_client busy(acceptor.connect());
      each_client first(acceptor.connect());
      each_client second(acceptor.connect());
      std::string kept;
      for (each_client* const each : {&busy, &first, &second}) {
        say(*each, "a\n");
        CHECK(next_line(*each, kept) == "1 a");
      }
      say(busy, "b\n");
      vigil::testing::settle();
      const auto start = vigil::clock::now();
      stopping.cancel();
      vigil::sleep_for(500ms);  // the first is being closed
      boost::system::error_code error;
      asio::write(second, asio::buffer("b\n", 2), error);
      CHECK(next_line(second, kept) == "");
      CHECK(since(start) <= 2s);
      go_on.close();
      server.join();
    });
  }

  TEST_CASE("the dump says how many are idle, and for how long the oldest has been") {
    in_virtual([] {
      running_server server(answer_lines);
      each_client first = server.connect();
      vigil::sleep_for(3s);
      each_client second = server.connect();
      vigil::sleep_for(4s);
      const std::string both = dumped();
      CHECK(both.find("io::serve_each at ") != std::string::npos);
      CHECK(both.find(": 2 idle connections, the oldest for 7.000 s\n") != std::string::npos);
      first.close();
      vigil::testing::settle();
      const std::string one = dumped();
      CHECK(one.find(": 1 idle connection, the oldest for 4.000 s\n") != std::string::npos);
      server.end();
      const std::string none = dumped();
      CHECK(none.find("idle connection") == std::string::npos);
    });
  }

  TEST_CASE("an idle time of zero or less is refused") {
    in_virtual([] {
      memory_acceptor acceptor;
      CHECK_THROWS_AS(serve_each<each_session>(acceptor, answer_lines, {.idle = 0s}),
                      std::invalid_argument);
    });
  }
}
