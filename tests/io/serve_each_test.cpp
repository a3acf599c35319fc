// io::serve_each: connections that have a fiber only while their handler runs; at exact
// times over memory_acceptor, and over TCP. serve_test and accept_error_test have the
// cases of accepting and of its errors.
#include "support/at_rest.hpp"
#include "support/dumped.hpp"
#include "support/in_runtime.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/serve_each.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
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
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <doctest/doctest.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::io::afterwards;
using vigil::io::deadline_stream;
using vigil::io::memory_acceptor;
using vigil::io::memory_stream;
using vigil::io::serve_each;
using vigil::io::use_fiber;

namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using each_client = deadline_stream<memory_stream>;

struct each_session {
  int lines = 0;
};

// Reads one line and answers with its number in the connection and its text.
template <class Connection>
afterwards answer_line(Connection& peer) {
  boost::system::error_code error;
  const std::size_t n =
      asio::read_until(peer.stream(), asio::dynamic_buffer(peer.input()), '\n', error);
  if (error) return afterwards::close;
  const std::string answer = std::to_string(++peer.state().lines) + " " + peer.input().substr(0, n);
  peer.input().erase(0, n);
  asio::write(peer.stream(), asio::buffer(answer), error);
  return error ? afterwards::close : afterwards::keep;
}

const auto answer_lines = [](auto& peer, const vigil::context&) {
  return peer.is_idle() ? afterwards::close : answer_line(peer);
};

template <class Stream>
void say(Stream& to, const std::string& text) {
  asio::write(to, asio::buffer(text));
}

// Returns the next line, or "" at the end of the stream.
template <class Stream>
std::string next_line(Stream& from, std::string& kept) {
  boost::system::error_code error;
  const std::size_t n = asio::read_until(from, asio::dynamic_buffer(kept), '\n', error);
  if (error) return "";
  std::string line = kept.substr(0, n - 1);
  kept.erase(0, n);
  return line;
}

// A server on a fiber, until its scope ends.
template <class Handler>
class running_server {
 public:
  running_server(Handler handler, const vigil::io::serve_limits& limits = {})
      : server_(vigil::spawn([this, handler, limits] {
          serve_each<each_session>(stopping_.ctx, acceptor, handler, limits);
        })) {}

  ~running_server() {
    const vigil::this_fiber::shield until_it_has_ended;
    end();
  }

  void stop() { stopping_.cancel(); }

  void end() {
    stop();
    if (server_.joinable()) server_.join();
  }

  each_client connect() { return each_client(acceptor.connect()); }

  memory_acceptor acceptor;

 private:
  vigil::cancellable stopping_ = vigil::with_cancel(vigil::background());
  vigil::fiber<void> server_;
};

}  // namespace

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

  TEST_CASE("if no fiber can be had a request waits for one") {
    vigil::testing::virtual_options how;
    how.runtime.max_fibers = 8;
    in_virtual(how, [] {
      running_server server(answer_lines);
      each_client client = server.connect();
      std::string kept;
      vigil::testing::settle();
      std::vector<vigil::fiber<void>> others;
      auto open = vigil::make_channel<void>();
      try {
        for (;;)
          others.push_back(vigil::spawn([&] { open.recv(); }));
      } catch (const vigil::limit_reached&) {
      }
      say(client, "a\n");
      vigil::sleep_for(1s);
      open.close();
      for (auto& f : others)
        f.join();
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
      std::vector<vigil::fiber<void>> others;
      auto open = vigil::make_channel<void>();
      try {
        for (;;)
          others.push_back(vigil::spawn([&] { open.recv(); }));
      } catch (const vigil::limit_reached&) {
      }
      vigil::sleep_for(11s);
      say(client, "a\n");
      open.close();
      for (auto& f : others)
        f.join();
      CHECK(next_line(client, kept) == "1 a");
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
      CHECK(both.find("serve_each_test.cpp") != std::string::npos);
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
