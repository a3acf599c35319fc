// TLS: an echo, with its certificate made for each server. Each message comes back as it
// was sent, or its connection ends.
#include "examples/io/certificate.hpp"
#include "soak/net.hpp"
#include "soak/world.hpp"

#include <vigil/io/tls.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

namespace vigil::soak {
namespace {

struct tls_ledger : ledger {
  using ledger::ledger;
  opened sent{*this, "sent"};
  closed back{*this, "came back"};
  closed cut{*this, "cut off"};
  closed left{*this, "left by the client"};
};

struct tls_connection_ledger : ledger {
  using ledger::ledger;
  opened opened_{*this, "opened"};
  closed closed_{*this, "closed"};
  note refused{*this, "refused in a shortage"};
};

using boost::asio::ssl::stream_base;

template <class Stream>
void echo(world& w, boost::asio::ssl::context& secret, Stream below) {
  io::tls_stream<Stream> peer(secret, std::move(below));
  peer.set_deadline(clock::now() + w.how.patience);
  peer.handshake(stream_base::server);
  std::vector<char> bytes(4'096);
  for (;;) {
    boost::system::error_code end;
    const std::size_t n = peer.read_some(boost::asio::buffer(bytes), end);
    if (end) break;
    boost::asio::write(peer, boost::asio::buffer(bytes.data(), n));
  }
  peer.shutdown();
}

// One connection of a client to a server that was made after `edges`.
template <class Stream>
void talk_tls(world& w, tls_ledger& l, dice& d, io::tls_stream<Stream>& peer, std::uint64_t edges) {
  const bool is_hasty = d.one_in(4);
  peer.set_host("localhost");
  const bool may_leave = d.one_in(8);
  if (may_leave) peer.set_deadline(clock::now() + w.draw(d) / 8);
  try {
    peer.handshake(stream_base::client);
  } catch (...) {
    l.must(may_leave || w.shortage_since(edges), "a patient client's handshake failed");
    throw;
  }
  peer.set_deadline(time_point::max());
  for (std::uint32_t n = 1 + d.below(4); n != 0; --n) {
    const std::string text(1 + (d.one_in(4) ? d.below(60'000) : d.below(400)),
                           static_cast<char>('a' + d.below(26)));
    ++l.sent;
    bool has_begun = true;
    try {
      if (is_hasty) peer.set_read_deadline(clock::now() + w.draw(d));
      // An error of the sending is met by the reading as well.
      auto sends = spawn([&] {
        boost::system::error_code ignored;
        boost::asio::write(peer, boost::asio::buffer(text), ignored);
      });
      if (d.one_in(8)) {
        sends.join();
        has_begun = false;
        ++l.left;
        return;
      }
      std::string got(text.size(), '\0');
      boost::asio::read(peer, boost::asio::buffer(got));
      sends.join();
      has_begun = false;
      ++l.back;
      l.must(got == text, "an echo is not what was sent");
    } catch (...) {
      if (!has_begun) throw;
      const bool gave_up = peer.read_error() == boost::asio::error::timed_out;
      ++(gave_up ? l.left : l.cut);
      l.must(gave_up || w.shortage_since(edges), "a patient client's message did not come back");
      throw;
    }
  }
  if (d.one_in(2)) peer.shutdown();
}

template <class Net>
void play_tls_clients(world& w,
                      tls_ledger& l,
                      tls_connection_ledger& c,
                      dice d,
                      Net& net,
                      boost::asio::ssl::context& trusted,
                      std::uint64_t edges) {
  for (std::uint32_t n = 1 + d.below(4); n != 0; --n) {
    bool is_connected = false;
    try {
      io::tls_stream<typename Net::stream> peer(trusted, net.connect());
      is_connected = true;
      ++c.opened_;
      try {
        talk_tls(w, l, d, peer, edges);
      } catch (...) {
        ++c.closed_;
        throw;
      }
      ++c.closed_;
    } catch (const boost::system::system_error&) {
      if (tells_of_shortage(std::current_exception())) ++c.refused;
      c.must(is_connected || w.shortage_since(edges), "a client cannot connect");
    } catch (const std::exception&) {
      if (!w.excuses(std::current_exception(), edges)) throw;
      ++c.refused;
    }
  }
}

// The life of one server, and of its certificate.
template <class Net>
void play_tls(world& w, tls_ledger& l, tls_connection_ledger& c, dice& d) {
  const std::uint64_t edges = w.shortages();
  Net net;
  example::tls_contexts contexts;
  io::serve_limits limits;
  limits.grace = w.how.patience;
  limits.connections = 1 + d.below(8);
  const auto [stopping, stop] = with_cancel(background());
  const auto answer = [&](typename Net::stream s, const context&) {
    echo(w, contexts.server, std::move(s));
  };
  auto serving = spawn([&, ctx = stopping] {
    serve_or_close(net, [&] { io::serve(ctx, net.acceptor, answer, limits); });
  });
  {
    group clients;
    for (std::uint32_t n = 1 + d.below(3); n != 0; --n)
      clients.go(
          [&, own = d.another()] { play_tls_clients(w, l, c, own, net, contexts.client, edges); });
    clients.wait();
  }
  stop();
  serving.join();
}

}  // namespace

void cast_tls(world& w) {
  auto& l = *w.keep<tls_ledger>("TLS messages");
  auto& c = *w.keep<tls_connection_ledger>("TLS connections");
  w.counts_connections(c.opened_);
  w.cast("tls", 1, [&](dice& d) {
    if (w.how.is_virtual) {
      play_tls<memory_net>(w, l, c, d);
      sleep_for(6h);  // a handshake takes more than all the rest
    } else {
      play_tls<loopback>(w, l, c, d);
    }
  });
}

}  // namespace vigil::soak
