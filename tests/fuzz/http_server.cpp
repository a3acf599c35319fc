// Covers: examples/io/http_server/connection.cpp examples/io/http_server/message.cpp
// Covers: examples/io/http_server/parser.hpp examples/io/http_server/refusal.cpp
// Covers: examples/io/http_server/response.cpp examples/io/http_server/server.cpp
//
// Bytes for the HTTP server of examples/io/http_server, in memory and on virtual time,
// once whole and once cut. The server must see the same requests and give the same
// answers, each must be one of HTTP/1.1, and the connection must end.
//
// The server may say 100 Continue only while no byte of the body has come, so such lines
// are not compared. With small limits a request may break two rules, of which the cuts
// decide which one is seen first: then the last answer may be another refusal.
#include "fuzz/input.hpp"
#include "http_server/server.hpp"
#include "http_server/site.hpp"

#include <vigil/io/memory_acceptor.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/write.hpp>

namespace {

using namespace std::chrono_literals;
using boost::system::error_code;
using fuzz::expect;

struct manner {
  bool has_small_limits = false;
  bool may_be_too_long = false;
  bool ends = false;          // its sending, after the last byte; otherwise it stays silent
  bool pauses = false;        // between two pieces
  bool receives_all = false;  // each body, whatever comes of it
  std::size_t capacity = 64 * 1024;
  std::string_view pieces;  // their sizes; after the last one the rest is sent as one
  std::string_view delays;  // seconds, each before a read; above 191 it goes away
};

struct conversation {
  std::vector<std::string> requests;  // as the handler has seen them
  std::string said;                   // by the server
};

web::options options_for(const manner& how) {
  web::options o;
  o.wall = [] { return std::time_t{0}; };
  if (!how.receives_all) {
    o.before_body = [](const web::request& in, web::response& out, const vigil::context& ctx) {
      in.path() == "/early" ? out.send("early") : web::check_method(in, out, ctx);
    };
  }
  o.tells_idle = true;
  if (how.has_small_limits) {
    o.header_bytes = 256;
    o.body_bytes = 64;
  }
  return o;
}

// The site of the example; and pages that answer in the other ways there are.
void answer(const web::request& in, web::response& out, const vigil::context& ctx) {
  if (in.method() == "HEAD") out.set("X-Head", "yes");
  if (in.path() == "/none") {
    out.status = 204;
  } else if (in.path() == "/error") {
    out.set("X-Lost", "yes");
    throw std::runtime_error("a handler's own");
  } else if (in.path() == "/broken") {
    out.set("X-Broken", "yes");
    out.write("the beginning");
    throw std::runtime_error("a handler's own");
  } else if (in.path() == "/parts") {
    out.write(std::string(20, 'x'));
    out.write(std::string(300, 'y'));
  } else if (in.path() == "/large") {
    out.send(std::string(std::size_t{70} << 10, 'x'));
  } else if (in.path() == "/idle") {
    out.keeps_idle = [n = 0]() mutable { return n++ == 0; };
    out.write({});
  } else if (in.path() == "/connection") {
    out.set_connection_keeps_idle([n = 0]() mutable { return n++ == 0; });
  } else if (in.path() == "/slow") {
    vigil::sleep_for(20ms, ctx);
  } else if (in.path() == "/own") {
    out.set("Keep-Alive", "timeout=1");
    out.send("its own");
  } else if (in.path() == "/unchanged") {
    out.status = 304;
    out.write("not sent");
  } else if (in.path() == "/again") {
    out.send("one");
    in.query().empty() ? out.send("two") : out.write("two");
  } else if (in.path() == "/field") {
    out.set(in.query(), in.query() == "X" ? "two\r\nlines" : "one");
    out.set("Y\n", "");
  } else {
    web::answer_site(in, out, ctx);
  }
}

using client = vigil::io::deadline_stream<vigil::io::memory_stream>;

void send(client& to, std::string_view bytes, const manner& how) {
  error_code error;
  const auto send_some = [&](std::size_t n) {
    const std::string_view piece = bytes.substr(0, n);
    bytes.remove_prefix(piece.size());
    boost::asio::write(to, boost::asio::buffer(piece), error);
  };
  for (const char size : how.pieces) {
    if (error || bytes.empty()) break;
    send_some(static_cast<std::uint8_t>(size) + std::size_t{1});
    // With others to run, virtual time stands still.
    for (int i = 0; i < 3; ++i)
      vigil::this_fiber::yield();
    if (how.pauses) vigil::sleep_for(1ms);
  }
  if (!error) send_some(bytes.size());
  if (how.ends) to.close_write(error);
}

conversation talk(std::string_view bytes, const manner& how) {
  conversation heard;
  vigil::testing::run_virtual({.seed = 1}, [&] {
    vigil::io::memory_acceptor acceptor(how.capacity);
    web::server server(
        [&](const web::request& in, web::response& out, const vigil::context& ctx) {
          heard.requests.push_back(std::string(in.method()) + ' ' + std::string(in.target()) + ' ' +
                                   std::string(in.host()) + '\n' + in.body());
          answer(in, out, ctx);
        },
        options_for(how));
    auto [stopping, stop] = vigil::with_cancel(vigil::background());
    vigil::io::serve_limits limits;
    limits.on_error = [](const std::exception_ptr&) {};
    auto serving =
        vigil::spawn([&, stopping = stopping] { server.serve(stopping, acceptor, limits); });
    client c(acceptor.connect());
    c.set_deadline(vigil::clock::now() + 24h);
    auto reading = vigil::spawn([&] {
      char room[4096];
      error_code error;
      for (std::size_t i = 0; !error; ++i) {
        const std::uint8_t delay =
            i < how.delays.size() ? static_cast<std::uint8_t>(how.delays[i]) : std::uint8_t{0};
        if (delay != 0) vigil::sleep_for(delay % 64 * 1s);
        if (delay > 191) return c.close();
        heard.said.append(room, c.read_some(boost::asio::buffer(room), error));
      }
      expect(error == boost::asio::error::eof, "the connection ends");
    });
    send(c, bytes, how);
    reading.join();
    c.close();
    stop();
    serving.join();
    expect(server.connections() == 0 && vigil::stats().fibers_alive == 1, "no fiber is left");
  });
  return heard;
}

// --- what was said

struct said_answer {
  unsigned status = 0;
  std::string_view head;
  std::string_view body;
  bool is_whole = true;
};

// The value of a field whose name the server writes just so; "" if it is not there.
std::string_view field(std::string_view head, std::string_view name) {
  const std::size_t at = head.find("\r\n" + std::string(name) + ": ");
  if (at == head.npos) return {};
  const std::size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

std::size_t number(std::string_view text, int base) {
  std::size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n, base);
  expect(error == std::errc() && end == text.data() + text.size(), "a size is a number");
  return n;
}

// Takes the chunks of a body. False if the end is missing.
bool take_chunks(std::string_view& text) {
  for (;;) {
    const std::size_t line = text.find("\r\n");
    if (line == text.npos) return false;
    const std::size_t size = number(text.substr(0, line), 16);
    text.remove_prefix(line + 2);
    if (text.size() < size + 2) return false;
    expect(text.substr(size, 2) == "\r\n", "a chunk has an end");
    text.remove_prefix(size + 2);
    if (size == 0) return true;
  }
}

// Takes one answer, which must be one of HTTP/1.1.
said_answer take_answer(std::string_view& text) {
  said_answer a;
  const std::size_t end = text.find("\r\n\r\n");
  expect(text.starts_with("HTTP/1.1 ") && end != text.npos, "an answer begins with its head");
  a.head = text.substr(0, end + 2);
  a.status = static_cast<unsigned>(number(a.head.substr(9, 3), 10));
  expect(a.status >= 100 && a.status < 600 && a.head[12] == ' ', "a status has three digits");
  text.remove_prefix(end + 4);
  if (a.status == 100) return a;
  expect(field(a.head, "Date") == "Thu, 01 Jan 1970 00:00:00 GMT", "an answer tells the date");
  const std::string_view length = field(a.head, "Content-Length");
  const bool is_chunked = field(a.head, "Transfer-Encoding") == "chunked";
  expect(length.empty() || !is_chunked, "a body has one end");
  if (!field(a.head, "X-Broken").empty()) {
    text = {};
    return a;
  }
  const std::string_view before = text;
  if (a.status == 204 || a.status == 304 || !field(a.head, "X-Head").empty()) return a;
  if (is_chunked) {
    a.is_whole = take_chunks(text);
    if (!a.is_whole) text = {};
  } else if (!length.empty()) {
    // No handler has seen the method of a request that was refused: it may be HEAD.
    const std::size_t size = number(length, 10);
    if (!text.empty() || a.status < 400) {
      a.is_whole = size <= text.size();
      text.remove_prefix(std::min(size, text.size()));
    }
  } else {
    expect(field(a.head, "Connection") == "close", "a body without an end is the last");
    text = {};
  }
  a.body = before.substr(0, before.size() - text.size());
  return a;
}

bool is_last(const said_answer& a) {
  return field(a.head, "Connection") == "close";
}

// All answers but those of 100.
std::vector<said_answer> answers_of(std::string_view said) {
  std::vector<said_answer> all;
  while (!said.empty()) {
    expect(all.empty() || !is_last(all.back()), "nothing follows the last answer");
    const said_answer a = take_answer(said);
    if (a.status != 100) all.push_back(a);
  }
  return all;
}

bool is_refusal(const said_answer& a) {
  return a.status >= 400 && is_last(a);
}

// Takes off the refusals of a request that is not whole.
void drop_refusals_of_part(std::vector<said_answer>& a,
                           std::vector<said_answer>& b,
                           const manner& how) {
  constexpr unsigned too_late = 408;
  if (a.size() == b.size()) {
    const bool are_refusals = !a.empty() && is_refusal(a.back()) && is_refusal(b.back());
    if (!are_refusals || (a.back().status != too_late && b.back().status != too_late)) return;
    a.pop_back();
    b.pop_back();
  } else {
    auto& longer = a.size() > b.size() ? a : b;
    if (how.ends && is_refusal(longer.back())) longer.pop_back();
  }
}

void compare(const conversation& one, const conversation& other, const manner& how) {
  auto a = answers_of(one.said);
  auto b = answers_of(other.said);
  expect(one.requests == other.requests, "the server sees the same requests, cut or whole");
  // One that is not whole, or missing, was under way when the client had gone.
  const auto is_whole = [&](const said_answer& x) { return x.is_whole || how.ends; };
  expect(std::all_of(a.begin(), a.end(), is_whole), "an answer that has begun is sent whole");
  const std::size_t lost = how.ends ? 1 : 0;
  expect(a.size() + lost >= one.requests.size(), "each request is answered");
  drop_refusals_of_part(a, b, how);
  expect(a.size() == b.size(), "the server gives as many answers, cut or whole");
  for (std::size_t i = 0; i < a.size(); ++i) {
    // One that is wrong and too long is refused for what is seen first.
    if (how.may_be_too_long && is_refusal(a[i]) && is_refusal(b[i])) continue;
    expect(a[i].head == b[i].head && a[i].body == b[i].body, "the answers are the same");
  }
}

// Where the last answer begins that another timing could change; the end, if there is
// none.
std::size_t certain_size(std::string_view said) {
  std::size_t last = 0;
  bool is_certain = true;
  for (std::string_view left = said; !left.empty();) {
    last = said.size() - left.size();
    is_certain = !is_refusal(take_answer(left));
  }
  return is_certain ? said.size() : last;
}

std::string without_continue(std::string text) {
  constexpr std::string_view line = "HTTP/1.1 100 Continue\r\n\r\n";
  for (std::size_t at = 0; (at = text.find(line, at)) != text.npos;)
    text.erase(at, line.size());
  return text;
}

// `slow`: what a client got that reads late, perhaps too late.
void compare_slow(const conversation& whole, const conversation& slow) {
  const std::string all = without_continue(whole.said);
  std::string got = without_continue(slow.said);
  got.resize(std::min(got.size(), certain_size(all)));
  // It may have been cut off in the middle of such a line.
  const auto differs = std::mismatch(got.begin(), got.end(), all.begin(), all.end()).first;
  const std::string rest(differs, got.end());
  expect(rest.empty() || std::string_view("HTTP/1.1 100 Continue\r\n\r\n").starts_with(rest) ||
             std::string_view("100 Continue\r\n\r\n").starts_with(rest),
         "a slow client gets the beginning of the answers");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  manner whole;
  const std::uint8_t flags = in.byte();
  whole.has_small_limits = (flags & 1) != 0;
  whole.ends = (flags & 2) != 0;
  manner cut = whole;
  // Somebody that has gone is seen at another moment of the answer.
  cut.pauses = (flags & 4) != 0 && !whole.ends;
  if ((flags & 8) != 0) cut.capacity = 16;
  whole.receives_all = cut.receives_all = (flags & 32) != 0;
  const bool is_slow = (flags & 16) != 0;
  (is_slow ? cut.delays : cut.pieces) = in.text(in.byte() % 64);
  const std::string_view bytes = in.rest();
  whole.may_be_too_long = whole.has_small_limits || bytes.size() > web::options().header_bytes;
  const conversation one = talk(bytes, whole);
  const conversation other = talk(bytes, cut);
  if (!is_slow) {
    compare(one, other, whole);
  } else if (!whole.ends && !whole.has_small_limits) {
    compare_slow(one, other);
  }
  return 0;
}
