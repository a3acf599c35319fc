// HTTP: the server of examples/io/http_server and its clients. Each request gets its own
// answer, or its connection ends; each handler ends; a patient client always gets an
// answer, unless something is short.
#include "http_server/client.hpp"
#include "http_server/server.hpp"
#include "soak/net.hpp"
#include "soak/world.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace vigil::soak {
namespace {

struct request_ledger : ledger {
  using ledger::ledger;
  opened sent{*this, "sent"};
  closed answered{*this, "answered"};
  closed cut{*this, "cut off"};
  closed left{*this, "left by the client"};
};

struct connection_ledger : ledger {
  using ledger::ledger;
  opened opened_{*this, "opened"};
  closed closed_{*this, "closed"};
  note refused{*this, "refused in a shortage"};
};

struct handler_ledger : ledger {
  using ledger::ledger;
  opened begun{*this, "begun"};
  closed ended{*this, "ended"};
};

struct http_ledgers {
  explicit http_ledgers(world& w)
      : requests(*w.keep<request_ledger>("HTTP requests")),
        connections(*w.keep<connection_ledger>("HTTP connections")),
        handlers(*w.keep<handler_ledger>("HTTP handlers")) {}

  request_ledger& requests;
  connection_ledger& connections;
  handler_ledger& handlers;
};

class counted_scope {
 public:
  counted_scope(entry& begun, entry& ended) : ended_(ended) { ++begun; }

  ~counted_scope() { ++ended_; }

  counted_scope(const counted_scope&) = delete;
  counted_scope& operator=(const counted_scope&) = delete;

 private:
  entry& ended_;
};

// The number in the path decides what the handler does, and both sides know the answer.
std::string answer_to(std::uint32_t n, std::string_view body) {
  return std::to_string(n) + ":" + std::string(body);
}

void answer_http(
    world& w, handler_ledger& l, const web::request& in, web::response& out, const context& ctx) {
  const counted_scope here(l.begun, l.ended);
  const auto n =
      static_cast<std::uint32_t>(std::stoul(std::string(in.path().substr(1))));  // "/123"
  const std::string text = answer_to(n, in.body());
  dice d(n);
  if (n % 4 == 1) sleep_for(w.draw(d), ctx);
  if (n % 4 != 2) return out.send(text);
  for (std::size_t i = 0; i < text.size(); i += 1'000) {
    if (d.one_in(4)) sleep_for(w.draw(d) / 8, ctx);
    out.write(std::string_view(text).substr(i, 1'000));
  }
}

std::string request_text(std::uint32_t n, const std::string& body) {
  return "POST /" + std::to_string(n) +
         " HTTP/1.1\r\nHost: soak\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

// One connection of a client to a server that was made after `edges`. `is_sure` tells
// whether each request must be answered.
template <class Stream>
void talk_http(world& w,
               request_ledger& l,
               dice& d,
               web::client<Stream>& c,
               std::uint64_t edges,
               bool is_sure) {
  struct awaited {
    std::uint32_t number;
    std::string body;
  };

  const bool is_hasty = d.one_in(4);
  for (std::uint32_t round = 1 + d.below(3); round != 0; --round) {
    if (d.one_in(8)) {
      // Half a header; then it leaves.
      c.send(request_text(1, "").substr(0, 1 + d.below(20)));
      return;
    }
    std::vector<awaited> sent;
    std::string all;
    for (std::uint32_t i = 1 + d.below(3); i != 0; --i) {
      std::string body(d.one_in(8) ? d.below(40'000) : d.below(200), 'x');
      sent.push_back({d.below(1'000'000), std::move(body)});
      all += request_text(sent.back().number, sent.back().body);
    }
    l.sent += sent.size();
    std::size_t got = 0;
    try {
      // An answer may come while a later request is sent. An error of the sending is met
      // by the reading as well.
      auto sends = spawn([&] {
        boost::system::error_code ignored;
        boost::asio::write(c.stream(), boost::asio::buffer(all), ignored);
      });
      if (d.one_in(8)) {
        sends.join();
        l.left += sent.size();
        return;
      }
      if (is_hasty) c.stream().set_read_deadline(clock::now() + w.draw(d));
      for (; got < sent.size(); ++got) {
        const web::reply r = c.receive();
        if (r.result_int() != 200) {  // as a strict server answers
          l.must(!is_sure || w.shortage_since(edges), "a patient client's answer is an error");
          l.cut += sent.size() - got;
          return;
        }
        l.must(r.body() == answer_to(sent[got].number, sent[got].body),
               "an answer is another request's");
        ++l.answered;
      }
      sends.join();
    } catch (...) {
      const bool gave_up = c.stream().read_error() == boost::asio::error::timed_out;
      (gave_up ? l.left : l.cut) += sent.size() - got;
      l.must(gave_up || !is_sure || w.shortage_since(edges),
             "a patient client's request was not answered");
      throw;
    }
  }
}

template <class Net>
void play_clients(world& w, http_ledgers& l, dice d, Net& net, std::uint64_t edges, bool is_sure) {
  for (std::uint32_t n = 1 + d.below(8); n != 0; --n) {
    bool is_connected = false;
    try {
      web::client<typename Net::stream> c(net.connect());
      is_connected = true;
      const counted_scope here(l.connections.opened_, l.connections.closed_);
      talk_http(w, l.requests, d, c, edges, is_sure);
      if (d.one_in(2)) c.stream().close();
    } catch (const boost::system::system_error&) {
      if (tells_of_shortage(std::current_exception())) ++l.connections.refused;
      l.connections.must(is_connected || w.shortage_since(edges), "a client cannot connect");
    } catch (const std::exception&) {
      if (!w.excuses(std::current_exception(), edges)) throw;
      ++l.connections.refused;
    }
  }
}

// The life of one server.
template <class Net>
void play_http(world& w, http_ledgers& l, dice& d) {
  const std::uint64_t edges = w.shortages();
  Net net;
  // One server in four has so little patience that it may cut off any client.
  const bool is_strict = d.one_in(4);
  const nanoseconds patience = is_strict ? 1us + w.draw(d) : w.how.patience;
  web::options how;
  how.idle = how.header = how.body = how.write = patience;
  how.linger = w.how.longest;
  web::server server(
      [&](const web::request& in, web::response& out, const context& ctx) {
        answer_http(w, l.handlers, in, out, ctx);
      },
      how);
  io::serve_limits limits;
  limits.connections = 1 + d.below(8);
  limits.on_error = [&](const std::exception_ptr& e) {
    if (!w.excuses(e, edges)) l.handlers.fail("a handler ended by an exception");
  };
  const auto [stopping, stop] = with_cancel(background());
  auto serving = spawn([&, ctx = stopping] {
    serve_or_close(net, [&] { server.serve(ctx, net.acceptor, limits); });
  });
  {
    group clients;
    for (std::uint32_t n = 1 + d.below(4); n != 0; --n)
      clients.go([&, own = d.another()] { play_clients(w, l, own, net, edges, !is_strict); });
    clients.wait();
  }
  stop();
  serving.join();
  l.connections.must(server.connections() == 0, "a server ended with a connection");
}

}  // namespace

void cast_http(world& w) {
  const auto l = std::make_shared<http_ledgers>(w);
  w.counts_connections(l->connections.opened_);
  w.cast("http", 2, [&w, l](dice& d) {
    if (w.how.is_virtual) {
      play_http<memory_net>(w, *l, d);
      sleep_for(2h);
    } else {
      play_http<loopback>(w, *l, d);
    }
  });
}

}  // namespace vigil::soak
