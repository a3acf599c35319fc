// A server and its client are cut short at each point at which they wait, by a context, a
// stop, the server's end, the io_context's stop and end: nobody hangs, and nothing is
// left.
#include "io/cut_test.hpp"
#include "io/transports.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/serve.hpp>

#include <array>
#include <memory>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

using namespace vigil::io_testing;
using vigil::io::serve;

namespace {

enum class cut { context, client, server, stopping, acceptor };

constexpr cut all_cuts[] = {cut::context, cut::client, cut::server, cut::stopping, cut::acceptor};

constexpr int questions = 20;

// The client asks some questions; meanwhile, after pause(), `what` is cut.
template <class Acceptor, class Connect, class Pause>
void cut_short(Acceptor& acceptor, Connect connect, cut what, whereabouts& asks, Pause pause) {
  const auto stopping = vigil::with_cancel(vigil::background());
  const auto asked = vigil::with_cancel(vigil::background());
  const auto token = use_fiber.under(asked.ctx);
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
    asks.at("connecting");
    auto s = connect(token);
    for (int i = 0; i < questions; ++i) {
      const char question = static_cast<char>('a' + i);
      asks.at("writing");
      s.async_write_some(asio::buffer(&question, 1), token);
      char byte = 0;
      asks.at("reading");
      s.async_read_some(asio::buffer(&byte, 1), token);
      REQUIRE(byte == question);
    }
    asks.done();
  });
  pause();
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
    // A client still in the backlog hears of it when the backlog goes.
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
}

// A talk over narrow pipes, so that writes wait, too. In the end both sides fall silent,
// and the idle time ends it.
void cut_talk(void (*cut)(vigil::fiber<>&, timed_memory_stream&), int turns, whereabouts& talk) {
  vigil::io::idle_list idle(10s);
  auto [one, other] = vigil::io::memory_pipe(3);
  timed_memory_stream near(std::move(one));
  timed_memory_stream far(std::move(other));
  near.set_idle_list(idle);
  std::array<char, 8> bytes{};
  auto talks = vigil::spawn([&] {
    error_code error;
    for (int i = 0; i < 3; ++i) {
      talk.at("writing");
      asio::write(near, asio::buffer(bytes), error);
      if (error) return;
      talk.at("reading");
      asio::read(near, asio::buffer(bytes), error);
      if (error) return;
    }
    const auto due = vigil::clock::now() + 10s;
    talk.at("idle");
    near.read_some(asio::buffer(bytes), error);
    if (error == asio::error::timed_out && vigil::clock::now() == due) talk.done();
  });
  auto echoes = vigil::spawn([&] {
    std::array<char, 5> some{};
    error_code error;
    while (!error) {
      const std::size_t n = far.read_some(asio::buffer(some), error);
      if (!error) asio::write(far, asio::buffer(some.data(), n), error);
    }
  });
  bool is_late = false;
  for (int i = 0; i < turns; ++i) {
    // From then on, at the very instant at which the idle time is over.
    if (talk.point() == "idle" && i % 2 == 1 && !std::exchange(is_late, true)) {
      vigil::sleep_for(10s);
    }
    vigil::this_fiber::yield();
  }
  cut(talks, near);
  join_cut(talks);
  near.close();
  CHECK(idle.size() == 0);
  join_cut(echoes);
}

}  // namespace

TEST_SUITE("io: cut short at each point") {
  TEST_CASE("after each turn of the scheduler, in memory") {
    cut_points ended;
    for (const cut what : all_cuts) {
      cut_after_each_turn(20, ended, [what](int turns, whereabouts& asks) {
        vigil::io::memory_acceptor acceptor;
        cut_short(
            acceptor,
            [&](const auto&) { return acceptor.connect(); },
            what,
            asks,
            [turns] { pass(turns); });
      });
    }
    check_cut_at(ended, {"connecting", "reading", "writing"});
  }

  // One worker: the client has begun to wait when this fiber reads its position.
  TEST_CASE("at each point of a client, over TCP") {
    for (const cut what : all_cuts) {
      int reading = 0;
      in_runtime({.workers = {1}}, [what, &reading] {
        for (int n = 0; n <= 2 * questions + 1; ++n) {
          tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
          const auto where = acceptor.local_endpoint();
          whereabouts asks;
          cut_short(
              acceptor,
              [&](const auto& token) {
                tcp::socket s(vigil::io::io_context());
                s.async_connect(where, token);
                return s;
              },
              what,
              asks,
              [&] {
                while (asks.points() < n && !asks.is_done())
                  vigil::this_fiber::yield();
              });
          REQUIRE(vigil::stats().fibers_alive == 1);
          if (asks.point() == "reading") ++reading;
        }
      });
      CHECK(reading > 0);
    }
  }

  TEST_CASE("a stop, a close and a deadline at each point of a talk, and of its idle time") {
    using stream = timed_memory_stream;
    void (*const cuts[])(vigil::fiber<>&, stream&) = {
        [](auto& talks, stream&) { talks.request_stop(); },
        [](auto&, stream& near) { near.close(); },
        [](auto&, stream& near) { near.set_deadline(vigil::clock::now()); },
    };
    for (const auto cut : cuts) {
      cut_points ended;
      cut_after_each_turn(
          10, ended, [cut](int turns, whereabouts& talk) { cut_talk(cut, turns, talk); });
      check_cut_at(ended, {"reading", "writing", "idle"});
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
