// A server and its client are cut short at each point at which they wait, by a
// context, a stop, the server's end, the io_context's stop and end: nobody hangs, and
// nothing is left.
#include "io/io_test.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/serve.hpp>

#include <memory>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using namespace vigil::io_testing;
using vigil::io::serve;
using vigil::io::use_fiber;

namespace {

using tcp = asio::ip::tcp;

enum class cut { context, client, server, stopping, acceptor };

constexpr cut all_cuts[] = {cut::context, cut::client, cut::server, cut::stopping, cut::acceptor};

// Whatever ends it early.
template <class R>
void join_cut(vigil::fiber<R>& f) {
  try {
    f.join();
  } catch (const vigil::cancelled&) {
  } catch (const boost::system::system_error&) {
  }
}

// Some answers are asked for; meanwhile, after pause(), `what` is cut. True if the
// client had all of them by then.
template <class Acceptor, class Connect, class Pause>
bool cut_short(Acceptor& acceptor, Connect connect, cut what, Pause pause) {
  constexpr int questions = 20;
  const auto stopping = vigil::with_cancel(vigil::background());
  const auto asked = vigil::with_cancel(vigil::background());
  const auto token = use_fiber.under(asked.ctx);
  int answers = 0;
  auto server = vigil::spawn([&] {
    serve(stopping.ctx,
          acceptor,
          [&](auto peer) {
            char byte = 0;
            for (;;) {
              peer.async_read_some(asio::buffer(&byte, 1), token);
              peer.async_write_some(asio::buffer(&byte, 1), token);
            }
          },
          {.grace = 0s});
  });
  auto client = vigil::spawn([&] {
    auto s = connect(token);
    for (char question = 'a'; answers < questions; ++question) {
      s.async_write_some(asio::buffer(&question, 1), token);
      char byte = 0;
      s.async_read_some(asio::buffer(&byte, 1), token);
      REQUIRE(byte == question);
      ++answers;
    }
  });
  pause();
  const bool complete = answers == questions;
  switch (what) {
    case cut::context:
      asked.cancel();
      break;
    case cut::client:
      client.request_stop();
      break;
    case cut::server:
      server.request_stop();
      break;
    case cut::stopping:
      stopping.cancel();
      break;
    case cut::acceptor:
      acceptor.close();
      break;
  }
  if (what == cut::stopping || what == cut::acceptor) {
    // Who was still in the backlog hears of it when that goes.
    join_cut(server);
    acceptor.close();
  }
  if (what == cut::server) {
    join_cut(server);
    acceptor.close();
  }
  join_cut(client);
  stopping.cancel();
  if (server.joinable()) join_cut(server);
  return complete;
}

}  // namespace

TEST_SUITE("io: cut short at each point") {
  TEST_CASE("after each turn of the scheduler, in memory") {
    for (const cut what : all_cuts) {
      for_each_seed(20, [what] {
        bool complete = false;
        int turns = 0;
        for (; !complete; ++turns) {
          REQUIRE(turns < 1000);
          vigil::io::memory_acceptor acceptor;
          complete = cut_short(
              acceptor,
              [&](const auto&) { return acceptor.connect(); },
              what,
              [turns] {
                for (int i = 0; i < turns; ++i)
                  vigil::this_fiber::yield();
              });
          REQUIRE(vigil::stats().fibers_alive == 1);
        }
        CHECK(turns > 5);
      });
    }
  }

  TEST_CASE("after ever longer times, over TCP") {
    for (const cut what : all_cuts) {
      in_runtime({.workers = {1}}, [what] {
        for (int n = 0; n < rounds(60); ++n) {
          tcp::acceptor acceptor(vigil::io::context(), {asio::ip::address_v4::loopback(), 0});
          const auto where = acceptor.local_endpoint();
          cut_short(
              acceptor,
              [&](const auto& token) {
                tcp::socket s(vigil::io::context());
                s.async_connect(where, token);
                return s;
              },
              what,
              [n] { vigil::sleep_for(n * 3us); });
          REQUIRE(vigil::stats().fibers_alive == 1);
        }
      });
    }
  }

  TEST_CASE("in a stopped io_context deadlines, idle times and servers still end") {
    for (const unsigned workers : {1U, 2U}) {
      asio::io_context own;
      vigil::options o;
      vigil::io::attach(o, own);
      in_runtime({.workers = {workers}, .settings = o}, [&] {
        tcp::acceptor acceptor(own, {asio::ip::address_v4::loopback(), 0});
        const auto stopping = vigil::with_cancel(vigil::background());
        vigil::io::idle_list idle(3ms);
        auto server = vigil::spawn([&] { serve(stopping.ctx, acceptor, [](tcp::socket) {}); });
        using stream = vigil::io::deadline_stream<unix_socket>;
        stream near(own);
        stream far(own);
        asio::local::connect_pair(near.next_layer(), far.next_layer());
        far.set_idle_list(idle);
        const auto read = [](stream& s) {
          char byte = 0;
          error_code error;
          s.read_some(asio::buffer(&byte, 1), error);
          return error;
        };
        near.set_read_deadline(vigil::clock::now() + 2ms);
        auto one = vigil::spawn([&] { return read(near); });
        auto other = vigil::spawn([&] { return read(far); });
        vigil::this_fiber::yield();
        own.stop();
        CHECK(one.join() == asio::error::timed_out);
        CHECK(other.join() == asio::error::timed_out);
        stopping.cancel();
        server.join();
        own.restart();
      });
    }
  }

  TEST_CASE("a server whose io_context is destroyed returns") {
    // One worker, so that the server waits once this fiber does.
    in_runtime({.workers = {1}}, [] {
      auto other = std::make_unique<asio::io_context>();
      auto runner = std::make_unique<run_by_threads>(*other, 1);
      auto acceptor = std::make_unique<tcp::acceptor>(
          *other, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
      auto server = vigil::spawn([&] { serve(*acceptor, [](tcp::socket) {}); });
      vigil::sleep_for(1ms);
      runner.reset();
      other.reset();
      server.join();
      ::operator delete(acceptor.release());  // its io_context is gone: no destructor
    });
  }
}
