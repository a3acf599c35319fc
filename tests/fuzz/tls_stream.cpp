// Covers: src/tls/tls_engine.cpp include/vigil/io/detail/tls.hpp
//
// A client and a server of TLS, in memory and on virtual time. Their bytes are cut and
// held up on the way, and in one mode changed (tls_wire.hpp). Each end writes by a
// script, and may be disturbed by deadlines, a stop and a close (tls_end.hpp).
//
// Nobody reads a byte that was not sent. Unchanged, nothing hangs, and all of them
// arrive, whatever the cuts, and whichever reads and half messages came too late: only
// a write that was cut off, a stop and a close take something away. Changed, an end
// that the reader sees comes after all that was sent. An end that must not trust the
// other one neither reads nor sends, whatever the bytes are, nor if a session is
// resumed.
//
// OpenSSL draws its random numbers from a sequence that is the same for each input.
#include "fuzz/input.hpp"
#include "fuzz/tls_end.hpp"
#include "fuzz/tls_trust.hpp"
#include "fuzz/tls_wire.hpp"

#include <vigil/io/memory_stream.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <openssl/ssl.h>

namespace {

using namespace fuzz::tls;
using fuzz::expect;

struct manner {
  bool has_tickets = false;
  bool is_old = false;  // TLS 1.2
  std::size_t capacity = 64 * 1024;
  direction to_server;
  direction to_client;
  script client;
  script server;
  identity server_is = identity::known;
  naming name = naming::right;
  bool wants_certificate = false;  // of the client, which has none
  bool is_anonymous = false;       // before TLS 1.3 the server may show none
};

bool client_trusts(const manner& how) {
  if (how.name == naming::unverified) return true;
  if (how.server_is != identity::known) return false;
  return how.name < naming::none && !(how.is_anonymous && how.is_old);
}

void check_reader(const outcome& reader, const outcome& writer) {
  if (reader.read != boost::asio::error::eof) return;
  expect(reader.received == writer.sent, "an end comes after all that was sent");
}

bool is_disturbed(const outcome& x) {
  return x.may_be_cut || x.was_stopped || x.is_closed;
}

// Compares what one end has sent and the other has read, if the wire changes nothing.
void check_way(const outcome& writer, const outcome& reader) {
  if (writer.was_stopped || writer.is_closed || reader.is_closed) return;
  const bool has_written = !writer.write || writer.write == boost::asio::error::shut_down;
  // Half a message of the other end, if its rest never comes, stops this one's writes.
  if (!has_written && (writer.may_be_cut || (reader.may_be_cut && !reader.has_parted))) return;
  expect(has_written && writer.has_parted, "what is not changed is sent");
  expect(reader.read == boost::asio::error::eof, "its end arrives");
  expect(reader.received == writer.sent, "and all before it");
}

void check_whole(const outcome& one, const outcome& other) {
  if (one.handshake || other.handshake) {
    expect(is_disturbed(one) || is_disturbed(other), "a handshake succeeds");
    return;
  }
  check_way(one, other);
  check_way(other, one);
}

void check_refused(const outcome& by, const outcome& other) {
  expect(by.handshake && !by.handshake.message().empty(), "there is no trust");
  expect(by.handshake.category().name() != nullptr, "and a reason for it");
  expect(by.sent == 0 && by.received == 0 && other.received == 0, "and nothing is said");
}

void check(const manner& how, const outcome& client, const outcome& server, bool is_changed) {
  check_reader(client, server);
  check_reader(server, client);
  if (!client_trusts(how)) return check_refused(client, server);
  if (how.wants_certificate) return check_refused(server, client);
  if (is_changed) return;
  check_whole(client, server);
}

// `resumed`: the session of an earlier run; nullptr: none. Returns its own.
session run(contexts& known, const manner& how, const session& resumed) {
  boost::asio::ssl::context& serving_context = known.server(how.server_is);
  ::SSL_CTX_set_num_tickets(serving_context.native_handle(), how.has_tickets ? 2 : 0);
  const int newest = how.is_old ? TLS1_2_VERSION : TLS1_3_VERSION;
  SSL_CTX_set_max_proto_version(known.client().native_handle(), newest);
  outcome client;
  outcome server;
  session own;
  bool is_changed = false;
  vigil::testing::run_virtual({.seed = 1}, [&] {
    auto [a, b] = vigil::io::memory_pipe(how.capacity);
    auto [c, d] = vigil::io::memory_pipe(how.capacity);
    below near_client(std::move(b));
    below near_server(std::move(c));
    stream far(known.client(), std::move(a));
    stream near(serving_context, std::move(d));
    set_name(far, how.name);
    if (how.wants_certificate) near.require_certificate();
    if (how.is_anonymous) {
      for (SSL* const s : {far.native_handle(), near.native_handle()})
        expect(::SSL_set_cipher_list(s, "aNULL:@SECLEVEL=0") == 1, "there are such ciphers");
    }
    if (resumed != nullptr) ::SSL_set_session(far.native_handle(), resumed.get());
    carrier to_server(near_client, near_server, how.to_server);
    carrier to_client(near_server, near_client, how.to_client);
    auto there = vigil::spawn([&] { return to_server.carry(); });
    auto back = vigil::spawn([&] { return to_client.carry(); });
    auto serving =
        vigil::spawn([&] { end(near, stream_base::server, how.server, server, client).talk(); });
    end(far, stream_base::client, how.client, client, server).talk();
    serving.join();
    is_changed = there.join();
    is_changed = back.join() || is_changed;
    expect(vigil::stats().fibers_alive == 1, "no fiber is left");
    own.reset(::SSL_get1_session(far.native_handle()));
  });
  check(how, client, server, is_changed);
  return own;
}

direction direction_of(fuzz::input& in, bool is_changed) {
  direction d;
  d.pieces = in.text(in.byte());
  std::size_t at = 0;
  for (std::size_t n = in.below(4); n > 0; --n) {
    at += in.number<std::uint16_t>() % 4096;
    d.stalls.push_back({at, std::chrono::milliseconds(in.byte())});
  }
  at = 0;
  for (std::size_t n = is_changed ? in.below(4) : 0; n > 0; --n) {
    at += in.number<std::uint16_t>() % 4096;
    const auto how = static_cast<change>(in.below(5));
    d.changes.push_back({at, how, in.byte()});
  }
  return d;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  const std::uint8_t flags = in.byte();
  const auto has = [](std::uint8_t of, unsigned bit) { return (of >> bit & 1) != 0; };
  manner how;
  how.has_tickets = has(flags, 0);
  how.is_old = has(flags, 1);
  how.capacity = has(flags, 2) ? 100 : std::size_t{64} << 10;
  how.client.reads_slowly = has(flags, 3);
  how.server.reads_slowly = has(flags, 4);
  how.client.has_small_records = has(flags, 6);
  how.server.has_small_records = has(flags, 7);
  how.client.is_changed = has(flags, 5);
  how.server.is_changed = has(flags, 5);
  how.to_server = direction_of(in, has(flags, 5));
  how.to_client = direction_of(in, has(flags, 5));
  how.client.writes = in.text(in.byte() % 32);
  how.server.writes = in.text(in.byte() % 32);
  how.name = static_cast<naming>(in.below(8));
  const std::uint8_t more = in.byte();
  how.wants_certificate = has(more, 0);
  how.is_anonymous = has(more, 1);
  const bool resumes = has(more, 2);
  how.client.has_padding = has(more, 6);
  how.server.has_padding = has(more, 7);
  if (has(more, 4)) how.server_is = has(more, 5) ? identity::foreign : identity::late;
  how.client.disturbances = in.text(in.byte() % 16);
  how.server.disturbances = in.text(in.byte() % 16);
  expect(!vigil::io::tls_category().message(more).empty(), "each error has a text");

  contexts& known = fresh_contexts();
  draw_from_the_start();
  session earlier;
  if (resumes) {
    manner before;
    before.has_tickets = true;
    before.is_old = how.is_old;
    before.is_anonymous = how.is_anonymous;
    before.server_is = how.server_is;
    const bool trusts = !has(more, 3) && !how.is_anonymous && how.server_is == identity::known;
    before.name = trusts ? naming::right : naming::unverified;
    earlier = run(known, before, nullptr);
  }
  run(known, how, earlier);
  return 0;
}
