// io::serve_each: requests, and the time between them; at exact times over
// memory_acceptor, and over TCP. serve_test and accept_error_test have the cases of
// accepting and of its errors, serve_each_end_test those of the end.
#include "io/serve_each_test.hpp"

#include "support/at_rest.hpp"
#include "support/in_runtime.hpp"

#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <doctest/doctest.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using namespace vigil::serve_each_testing;
using vigil::io::afterwards;
using vigil::io::deadline_stream;
using vigil::io::serve_each;
using vigil::io::use_fiber;
using tcp = asio::ip::tcp;

TEST_SUITE("io::serve_each") {
  TEST_CASE("between two requests there is no fiber, and the state stays") {
    for_each_seed(5, [] {
      running_server server(answer_lines);
      vigil::testing::settle();
      const std::size_t without = vigil::stats().fibers_alive;
      std::vector<std::unique_ptr<each_client>> clients;
      std::vector<std::string> kept(10);
      for (std::size_t i = 0; i < kept.size(); ++i)
        clients.push_back(std::make_unique<each_client>(server.acceptor.connect()));
      for (int round = 1; round <= 3; ++round) {
        for (std::size_t i = 0; i < kept.size(); ++i) {
          say(*clients[i], "hello\n");
          CHECK(next_line(*clients[i], kept[i]) == std::to_string(round) + " hello");
        }
        vigil::testing::settle();
        CHECK(vigil::stats().fibers_alive == without);
      }
    });
  }

  TEST_CASE("requests that come together are answered in turn and none is dropped") {
    for_each_seed(5, [] {
      running_server server(answer_lines);
      each_client client = server.connect();
      std::string kept;
      say(client, "a\nb\nc\nhalf ");
      CHECK(next_line(client, kept) == "1 a");
      CHECK(next_line(client, kept) == "2 b");
      CHECK(next_line(client, kept) == "3 c");
      vigil::testing::settle();
      say(client, "and half\n");
      CHECK(next_line(client, kept) == "4 half and half");
    });
  }

  TEST_CASE("what is left in the input waits for more bytes if the handler used nothing") {
    in_virtual([] {
      int calls = 0;
      running_server server([&](auto& peer, const vigil::context&) {
        char c = 0;
        boost::system::error_code error;
        if (++calls == 2) return afterwards::keep;  // it needs more
        if (peer.stream().read_some(asio::buffer(&c, 1), error) == 0) return afterwards::close;
        peer.input() += c;
        return afterwards::keep;
      });
      each_client client = server.connect();
      say(client, "x");
      vigil::testing::settle();
      CHECK(calls == 2);  // after the read once more, for what is left
      vigil::sleep_for(1min);
      CHECK(calls == 2);
      say(client, "y");
      vigil::testing::settle();
      CHECK(calls == 4);
    });
  }

  TEST_CASE("a handler that keeps a connection and reads nothing is told, and does not spin") {
    in_virtual([] {
      std::string said;
      running_server server([](auto&, const vigil::context&) { return afterwards::keep; },
                            {.on_error = [&](const std::exception_ptr& e) {
                              try {
                                std::rethrow_exception(e);
                              } catch (const std::logic_error& what) {
                                said = what.what();
                              }
                            }});
      each_client client = server.connect();
      std::string kept;
      say(client, "x");
      CHECK(next_line(client, kept) == "");
      CHECK(said.find("without reading") != std::string::npos);
    });
  }

  TEST_CASE("after the idle time the handler is asked, at the nanosecond") {
    in_virtual([] {
      std::vector<std::chrono::nanoseconds> asked;
      const auto start = vigil::clock::now();
      running_server server(
          [&](auto& peer, const vigil::context&) {
            if (!peer.is_idle()) return answer_line(peer);
            asked.push_back(since(start));
            return asked.size() < 3 ? afterwards::keep : afterwards::close;
          },
          {.idle = 10s});
      each_client client = server.connect();
      std::string kept;
      vigil::sleep_for(4s);
      say(client, "a\n");
      CHECK(next_line(client, kept) == "1 a");
      CHECK(next_line(client, kept) == "");
      CHECK(since(start) == 34s);
      CHECK(asked == std::vector<std::chrono::nanoseconds>{14s, 24s, 34s});
    });
  }

  TEST_CASE("a request after an idle call is answered, and a busy connection is not idle") {
    in_virtual([] {
      int asked = 0;
      running_server server(
          [&](auto& peer, const vigil::context&) {
            if (!peer.is_idle()) {
              vigil::sleep_for(25s);  // longer than the idle time
              return answer_line(peer);
            }
            ++asked;
            return afterwards::keep;
          },
          {.idle = 10s});
      each_client client = server.connect();
      std::string kept;
      vigil::sleep_for(15s);
      CHECK(asked == 1);
      say(client, "a\n");
      CHECK(next_line(client, kept) == "1 a");
      CHECK(asked == 1);
      vigil::sleep_for(15s);
      CHECK(asked == 2);
      say(client, "b\n");
      CHECK(next_line(client, kept) == "2 b");
    });
  }

  TEST_CASE("if no fiber can be had a request waits for one") {
    vigil::testing::virtual_options how;
    how.runtime.max_fibers = 8;
    in_virtual(how, [] {
      running_server server(answer_lines);
      each_client client = server.connect();
      std::string kept;
      vigil::testing::settle();
      all_fibers others;
      say(client, "a\n");
      vigil::sleep_for(1s);
      others.end();
      CHECK(next_line(client, kept) == "1 a");
    });
  }

  TEST_CASE("keep after the end of the stream, or after a late read, is close") {
    in_virtual([] {
      for (const bool is_late : {false, true}) {
        int calls = 0;
        running_server server([&](auto& peer, const vigil::context&) {
          ++calls;
          char c = 0;
          boost::system::error_code error;
          if (is_late) peer.stream().set_read_deadline(vigil::clock::now() - 1s);
          peer.stream().read_some(asio::buffer(&c, 1), error);
          return afterwards::keep;
        });
        each_client client = server.connect();
        std::string kept;
        say(client, "x");
        vigil::testing::settle();
        CHECK(calls == 1);
        boost::system::error_code error;
        client.close_write(error);
        CHECK(next_line(client, kept) == "");
        CHECK(calls == (is_late ? 1 : 2));
      }
    });
  }

  TEST_CASE("an idle call may use what is left in the input") {
    in_virtual([] {
      std::string used;
      running_server server(
          [&](auto& peer, const vigil::context&) {
            char c = 0;
            boost::system::error_code error;
            if (peer.input().empty()) {
              if (peer.stream().read_some(asio::buffer(&c, 1), error) == 0) {
                return afterwards::close;
              }
              peer.input() = "abc";
            } else if (peer.is_idle() || !used.empty()) {
              used += peer.input().front();
              peer.input().erase(0, 1);
            }
            return afterwards::keep;
          },
          {.idle = 10s});
      each_client client = server.connect();
      say(client, "x");
      vigil::sleep_for(9s);
      CHECK(used == "");
      vigil::sleep_for(2s);
      CHECK(used == "abc");
      say(client, "x");
      vigil::testing::settle();
      client.close();
    });
  }

  TEST_CASE("bytes that come with the end of the idle time are a request") {
    for_each_seed(20, [] {
      running_server server(answer_lines, {.idle = 10s});
      each_client client = server.connect();
      std::string kept;
      vigil::testing::settle();
      vigil::sleep_for(10s);
      boost::system::error_code error;
      asio::write(client, asio::buffer("a\n", 2), error);
      // If the handler was asked before they came, the connection has gone.
      CHECK(next_line(client, kept) == (error ? "" : "1 a"));
    });
  }

  TEST_CASE("bytes that came while no fiber was to be had for an idle call are a request") {
    vigil::testing::virtual_options how;
    how.runtime.max_fibers = 8;
    in_virtual(how, [] {
      running_server server(answer_lines, {.idle = 10s});
      each_client client = server.connect();
      std::string kept;
      vigil::testing::settle();
      all_fibers others;
      vigil::sleep_for(11s);
      say(client, "a\n");
      others.end();
      CHECK(next_line(client, kept) == "1 a");
    });
  }

  TEST_CASE("a server whose connections all rest over TCP is not deadlocked") {
    in_runtime({.workers = {1, 2}}, [](vigil::runtime& rt) {
      auto& sched = vigil::detail::runtime_access::core_of(rt).sched;
      const auto stopping = vigil::with_cancel(vigil::background());
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      auto server = vigil::spawn([&] {
        serve_each<each_session>(stopping.ctx, acceptor, answer_lines, {.connections = 1});
      });
      std::thread outside([&] {
        asio::io_context own;
        tcp::socket s(own);
        s.connect(acceptor.local_endpoint());
        for (int i = 1; i <= 3; ++i) {
          asio::write(s, asio::buffer("x\n", 2));
          std::string line;
          asio::read_until(s, asio::dynamic_buffer(line), '\n');
          CHECK(line == std::to_string(i) + " x\n");
          wait_until_at_rest(sched);
        }
        stopping.cancel();
      });
      server.join();
      outside.join();
    });
  }

  TEST_CASE("many clients at once over TCP: each gets its own answers in order") {
    in_runtime({}, [] {
      const auto stopping = vigil::with_cancel(vigil::background());
      tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
      // Expires again and again, at the same moments as bytes come.
      auto server = vigil::spawn([&] {
        serve_each<each_session>(stopping.ctx,
                                 acceptor,
                                 [](auto& peer, const vigil::context&) {
                                   return peer.is_idle() ? afterwards::keep : answer_line(peer);
                                 },
                                 {.idle = 50us});
      });
      const auto end = acceptor.local_endpoint();
      vigil::group clients;
      for (unsigned c = 0; c < 20; ++c) {
        clients.go([&, c] {
          seeded random(c + 1);
          tcp::socket s(vigil::io::io_context());
          s.async_connect(end, use_fiber);
          deadline_stream<tcp::socket> client(std::move(s));
          std::string kept;
          for (int i = 1; i <= rounds(400);) {
            const int together = 1 + static_cast<int>(random.below(3));
            for (int k = 0; k < together; ++k)
              say(client, "x\n");
            for (int k = 0; k < together; ++k)
              CHECK(next_line(client, kept) == std::to_string(i++) + " x");
            if (random.below(8) == 0)
              vigil::sleep_for(std::chrono::microseconds(random.below(100)));
          }
        });
      }
      clients.wait();
      stopping.cancel();
      server.join();
    });
  }
}
