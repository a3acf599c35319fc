// Covers: src/tls/tls_engine.cpp include/vigil/io/detail/tls.hpp
//
// A client and a server of TLS, in memory and on virtual time. Their bytes are cut on
// the way, and in one mode changed: flipped, dropped, inserted, sent again, or cut off.
// Nobody reads a byte that was not sent; nothing hangs. Unchanged, all of them arrive,
// whatever the cuts; changed, an end that the reader sees comes after all that was sent.
// An end that must not trust the other one neither reads nor sends, whatever the bytes
// are, nor if a session is resumed.
//
// OpenSSL draws its random numbers from a sequence that is the same for each input.
#include "certificate.hpp"
#include "fuzz/input.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/memory_stream.hpp>
#include <vigil/io/tls.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/ssl/stream_base.hpp>
#include <boost/asio/write.hpp>

#include <openssl/rand.h>
#include <openssl/ssl.h>

namespace {

using namespace std::chrono_literals;
using boost::asio::ssl::stream_base;
using boost::system::error_code;
using fuzz::expect;
using below = vigil::io::deadline_stream<vigil::io::memory_stream>;
using stream = vigil::io::tls_stream<vigil::io::memory_stream>;

// --- random numbers

std::uint64_t drawn = 0;

int draw(unsigned char* to, int n) {
  for (int i = 0; i < n; ++i) {
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    to[i] = static_cast<unsigned char>(drawn >> 56);
  }
  return 1;
}

void draw_from_the_start() {
  static const RAND_METHOD method = {nullptr, &draw, nullptr, nullptr, &draw, [] { return 1; }};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  static const int is_set = ::RAND_set_rand_method(&method);
#pragma GCC diagnostic pop
  expect(is_set == 1, "OpenSSL takes the sequence");
  drawn = 1;
}

// --- the wire

enum class change : std::uint8_t { flip, drop, insert, again, cut_off };

struct changed_place {
  std::size_t at = 0;
  change how = change::flip;
  std::uint8_t value = 0;
};

struct direction {
  // The sizes of the first pieces; the rest goes as it comes.
  std::string_view pieces;
  std::vector<changed_place> changes;  // by `at`
};

// Changes bytes on their way, by their place among all that the sender has sent.
class changer {
 public:
  explicit changer(const direction& d) : left_(d.changes) {}

  std::string next(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) {
      std::size_t drops = 0;
      char sent = c;
      for (; !left_.empty() && left_.front().at <= seen_; left_.erase(left_.begin()))
        apply(left_.front(), sent, out, drops);
      ++seen_;
      dropping_ = std::max(dropping_, drops);
      if (is_cut_off_) break;
      if (dropping_ != 0) {
        --dropping_;
        continue;
      }
      out += sent;
      passed_ += sent;
    }
    return out;
  }

  bool has_changed() const { return has_changed_; }

  bool is_cut_off() const { return is_cut_off_; }

 private:
  void apply(const changed_place& c, char& sent, std::string& out, std::size_t& drops) {
    has_changed_ = true;
    switch (c.how) {
      case change::flip:
        sent = static_cast<char>(sent ^ (c.value == 0 ? 1 : c.value));
        break;
      case change::drop:
        drops = c.value + std::size_t{1};
        break;
      case change::insert:
        out.append(c.value % 8 + std::size_t{1}, static_cast<char>(c.value));
        break;
      case change::again:
        out += passed_.substr(passed_.size() - std::min<std::size_t>(c.value, passed_.size()));
        break;
      case change::cut_off:
        is_cut_off_ = true;
        break;
    }
  }

  std::vector<changed_place> left_;
  std::string passed_;
  std::size_t seen_ = 0;
  std::size_t dropping_ = 0;
  bool has_changed_ = false;
  bool is_cut_off_ = false;
};

// Carries one direction to its end. Returns whether a byte was changed.
bool carry(below& from, below& to, const direction& d) {
  changer c(d);
  std::size_t piece = 0;
  error_code read_error;
  error_code write_error;
  char room[2048];
  while (!read_error) {
    const std::size_t n = from.read_some(boost::asio::buffer(room), read_error);
    const std::string sent = c.next({room, n});
    for (std::string_view rest = sent; !rest.empty() && !write_error;) {
      const bool is_cut = piece < d.pieces.size();
      const std::size_t size =
          is_cut ? static_cast<std::uint8_t>(d.pieces[piece++]) + std::size_t{1} : rest.size();
      const std::string_view now = rest.substr(0, size);
      rest.remove_prefix(now.size());
      boost::asio::write(to, boost::asio::buffer(now), write_error);
      if (is_cut) vigil::this_fiber::yield();
    }
    // The rest is read all the same, so that its sender does not wait.
    if (c.is_cut_off() && !write_error) {
      to.close_write(write_error);
      write_error = boost::asio::error::broken_pipe;
    }
  }
  if (!write_error) to.close_write(write_error);
  return c.has_changed();
}

// --- an end

struct script {
  std::string_view writes;  // a size each; 0: new keys, which the other end must answer
  bool reads_slowly = false;
};

// The byte at this place of all that an end sends.
char sent_byte(stream_base::handshake_type side, std::size_t at) {
  return static_cast<char>(at * 31 + (at >> 8) * 7 + (side == stream_base::client ? 0 : 99));
}

struct outcome {
  error_code handshake;
  error_code write;
  error_code read;
  std::size_t sent = 0;
  std::size_t received = 0;
  bool has_parted = false;
};

void write_all(stream& s, stream_base::handshake_type side, const script& what, outcome& out) {
  for (const char size : what.writes) {
    if (size == 0) {
      // Before TLS 1.3 there are none.
      static_cast<void>(::SSL_key_update(s.native_handle(), SSL_KEY_UPDATE_REQUESTED));
      continue;
    }
    std::string bytes;
    const std::size_t n = static_cast<std::uint8_t>(size) * std::size_t{size < 0 ? 100u : 1u};
    for (std::size_t i = 0; i < n; ++i)
      bytes += sent_byte(side, out.sent + i);
    const boost::asio::const_buffer all = boost::asio::buffer(bytes);
    const std::array<boost::asio::const_buffer, 3> parts = {
        boost::asio::const_buffer(all.data(), n / 3), {}, all + n / 3};
    boost::asio::write(s, parts, out.write);
    if (out.write) return;
    out.sent += n;
  }
  s.shutdown(out.write);
  out.has_parted = !out.write;
}

void read_all(stream& s, stream_base::handshake_type other, const script& what, outcome& out) {
  char room[700];
  while (!out.read) {
    if (what.reads_slowly) vigil::sleep_for(1ms);
    const std::size_t n = s.read_some(boost::asio::buffer(room), out.read);
    for (std::size_t i = 0; i < n; ++i)
      expect(room[i] == sent_byte(other, out.received + i), "what is read was sent");
    out.received += n;
  }
}

void talk(stream& s, stream_base::handshake_type side, const script& what, outcome& out) {
  const auto other = side == stream_base::client ? stream_base::server : stream_base::client;
  s.handshake(side, out.handshake);
  if (!out.handshake) {
    auto writing = vigil::spawn([&] { write_all(s, side, what, out); });
    read_all(s, other, what, out);
    writing.join();
  }
  s.close();
}

// --- both

enum class naming : std::uint8_t {
  right,
  address,
  with_dot,
  twice,
  none,
  wrong,
  other,
  unverified
};

struct manner {
  bool has_tickets = false;
  bool is_old = false;  // TLS 1.2
  std::size_t capacity = 64 * 1024;
  direction to_server;
  direction to_client;
  script client;
  script server;
  naming name = naming::right;
  bool wants_certificate = false;  // of the client, which has none
  bool is_anonymous = false;       // before TLS 1.3 the server may show none
};

bool client_trusts(const manner& how) {
  if (how.name == naming::unverified) return true;
  return how.name < naming::none && !(how.is_anonymous && how.is_old);
}

void check_reader(const outcome& reader, const outcome& writer) {
  if (reader.read != boost::asio::error::eof) return;
  expect(reader.received == writer.sent, "an end comes after all that was sent");
}

void check_whole(const outcome& one, const outcome& other) {
  expect(!one.handshake && !one.write && one.has_parted, "what is not changed is sent");
  expect(one.read == boost::asio::error::eof && one.received == other.sent, "and arrives");
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
  check_whole(server, client);
}

bool throws(stream& s, const std::string& name) {
  try {
    s.set_host(name);
  } catch (const boost::system::system_error& e) {
    return e.code() == boost::asio::error::invalid_argument;
  }
  return false;
}

void set_name(stream& s, naming name) {
  switch (name) {
    case naming::right:
      return s.set_host("localhost");
    case naming::address:
      return s.set_host("127.0.0.1");
    case naming::with_dot:
      return s.set_host("localhost.");
    case naming::twice:
      s.set_host("127.0.0.2");
      return s.set_host("localhost");
    case naming::none:
      for (const std::string_view wrong : {"", ".", ".localhost"})
        expect(throws(s, std::string(wrong)), "what is no name is refused");
      expect(throws(s, std::string("localhost\0", 10)), "and what ends in a 0");
      return;
    case naming::wrong:
      return s.set_host("127.0.0.2");
    case naming::other:
      return s.set_host("other.example");
    case naming::unverified:
      return s.skip_verification();
  }
}

// Made anew now and then, as a certificate is good for an hour.
example::tls_contexts& fresh_contexts() {
  static std::optional<example::tls_contexts> made;
  static unsigned runs = 0;
  if (runs++ % 1024 == 0) {
    draw_from_the_start();
    made.emplace();
    SSL_CTX_set_session_cache_mode(made->server.native_handle(), SSL_SESS_CACHE_OFF);
  }
  return *made;
}

using session = std::unique_ptr<SSL_SESSION, example::freed_by<::SSL_SESSION_free>>;

// `resumed`: the session of an earlier run; nullptr: none. Returns its own.
session run(example::tls_contexts& contexts, const manner& how, const session& resumed) {
  ::SSL_CTX_set_num_tickets(contexts.server.native_handle(), how.has_tickets ? 2 : 0);
  const int newest = how.is_old ? TLS1_2_VERSION : TLS1_3_VERSION;
  SSL_CTX_set_max_proto_version(contexts.client.native_handle(), newest);
  outcome client;
  outcome server;
  session own;
  bool is_changed = false;
  vigil::testing::run_virtual({.seed = 1}, [&] {
    auto [a, b] = vigil::io::memory_pipe(how.capacity);
    auto [c, d] = vigil::io::memory_pipe(how.capacity);
    below near_client(std::move(b));
    below near_server(std::move(c));
    stream far(contexts.client, std::move(a));
    stream near(contexts.server, std::move(d));
    set_name(far, how.name);
    if (how.wants_certificate) near.require_certificate();
    if (how.is_anonymous) {
      for (SSL* const s : {far.native_handle(), near.native_handle()})
        expect(::SSL_set_cipher_list(s, "aNULL:@SECLEVEL=0") == 1, "there are such ciphers");
    }
    if (resumed != nullptr) ::SSL_set_session(far.native_handle(), resumed.get());
    // So late that only an end which waits for ever comes to it.
    far.set_deadline(vigil::clock::now() + 1h);
    near.set_deadline(vigil::clock::now() + 1h);
    auto there = vigil::spawn([&] { return carry(near_client, near_server, how.to_server); });
    auto back = vigil::spawn([&] { return carry(near_server, near_client, how.to_client); });
    auto serving = vigil::spawn([&] { talk(near, stream_base::server, how.server, server); });
    talk(far, stream_base::client, how.client, client);
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
  const auto has = [flags](unsigned bit) { return (flags >> bit & 1) != 0; };
  manner how;
  how.has_tickets = has(0);
  how.is_old = has(1);
  how.capacity = has(2) ? 100 : std::size_t{64} << 10;
  how.client.reads_slowly = has(3);
  how.server.reads_slowly = has(4);
  how.to_server = direction_of(in, has(5));
  how.to_client = direction_of(in, has(5));
  how.client.writes = in.text(in.byte() % 32);
  how.server.writes = in.text(in.byte() % 32);
  how.name = static_cast<naming>(in.below(8));
  const std::uint8_t more = in.byte();
  how.wants_certificate = (more & 1) != 0;
  how.is_anonymous = (more & 2) != 0;
  const bool resumes = (more & 4) != 0;

  example::tls_contexts& contexts = fresh_contexts();
  draw_from_the_start();
  session earlier;
  if (resumes) {
    manner before;
    before.has_tickets = true;
    before.is_old = how.is_old;
    before.is_anonymous = how.is_anonymous;
    before.name = (more & 8) != 0 || how.is_anonymous ? naming::unverified : naming::right;
    earlier = run(contexts, before, nullptr);
  }
  run(contexts, how, earlier);
  return 0;
}
