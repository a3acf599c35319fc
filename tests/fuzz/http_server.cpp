// Covers: examples/io/http_server/connection.cpp examples/io/http_server/message.cpp
// Covers: examples/io/http_server/parser.hpp examples/io/http_server/refusal.cpp
// Covers: examples/io/http_server/response.cpp examples/io/http_server/server.cpp
//
// Bytes for the HTTP server of examples/io/http_server, in memory and on virtual time,
// once whole and once cut. A reader of its own (http_model.hpp) says which requests the
// handler must see, and the status of each answer. The server must also see the same
// requests and give the same answers both times, and the connection must end.
//
// The server may say 100 Continue only while no byte of the body has come, so such lines
// are not compared: the reader says which client must get one. Time ends half a request
// when it should, and an answer that the client does not take. With small limits a
// request may break two rules, of which the cuts decide which one is seen first: then the
// last answer may be another refusal.
#include "fuzz/http_answers.hpp"
#include "fuzz/http_model.hpp"
#include "fuzz/http_pages.hpp"
#include "fuzz/input.hpp"
#include "http_server/server.hpp"
#include "http_server/site.hpp"

#include <vigil/io/memory_acceptor.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/write.hpp>

namespace {

using namespace std::chrono_literals;
using boost::system::error_code;
using fuzz::expect;
using namespace fuzz::http;

struct manner {
  bool has_small_limits = false;
  bool may_be_too_long = false;
  bool ends = false;          // its sending, after the last byte; otherwise it stays silent
  bool pauses = false;        // between two pieces
  bool receives_all = false;  // each body, whatever comes of it
  std::size_t capacity = 64 * 1024;
  std::string_view pieces;  // their sizes; after the last one the rest is sent as one
  std::string_view delays;  // seconds, each before a read; above 191 it goes away

  bool has_no_time_limits = false;
  bool tells_idle = true;
  bool has_short_idle = false;  // so that nothing can be told of it
  bool keeps_idle_once = false;
  bool has_short_grace = false;
  std::optional<std::chrono::milliseconds> stops_after;
};

struct conversation {
  std::vector<std::string> requests;  // as the handler has seen them
  std::string said;                   // by the server
  bool is_cut_off = false;            // by the end of the grace

  // How many bytes the client had sent with each piece, and when, since the beginning.
  std::vector<std::pair<std::size_t, std::chrono::nanoseconds>> sent;
  std::chrono::nanoseconds end{};  // of what the server said

  // How many bytes the client had received before each sleep, and how long that was.
  std::vector<std::pair<std::size_t, std::chrono::nanoseconds>> sleeps;
};

limits limits_of(const manner& how) {
  const web::options usual;
  limits l{usual.header_bytes, usual.body_bytes, !how.receives_all};
  if (how.has_small_limits) l = {256, 64, l.answers_early};
  return l;
}

web::options options_for(const manner& how) {
  web::options o;
  o.wall = [] { return std::time_t{0}; };
  if (!how.receives_all) {
    o.before_body = [](const web::request& in, web::response& out, const vigil::context& ctx) {
      in.path() == "/early" ? out.send("early") : web::check_method(in, out, ctx);
    };
  }
  o.tells_idle = how.tells_idle;
  if (how.has_short_idle) o.idle = 1s;
  if (how.keeps_idle_once) o.keeps_idle = [n = 0]() mutable { return n++ == 0; };
  if (how.has_no_time_limits) {
    for (auto* const limit : {&o.idle, &o.header, &o.body, &o.write, &o.linger})
      *limit = std::chrono::nanoseconds::max();
  }
  if (how.has_small_limits) {
    o.header_bytes = limits_of(how).header;
    o.body_bytes = limits_of(how).body;
  }
  return o;
}

using client = vigil::io::deadline_stream<vigil::io::memory_stream>;

void send(client& to, std::string_view bytes, const manner& how, conversation& heard) {
  error_code error;
  const auto begin = vigil::clock::now();
  const std::size_t all = bytes.size();
  const auto send_some = [&](std::size_t n) {
    const std::string_view piece = bytes.substr(0, n);
    heard.sent.emplace_back(all - bytes.size() + piece.size(), vigil::clock::now() - begin);
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
          heard.requests.push_back(seen_by_handler(in));
          answer(in, out, ctx);
        },
        options_for(how));
    auto [stopping, stop] = vigil::with_cancel(vigil::background());
    vigil::io::serve_limits limits;
    limits.on_error = [](const std::exception_ptr&) {};
    if (how.has_short_grace) limits.grace = 5ms;
    auto serving =
        vigil::spawn([&, stopping = stopping] { server.serve(stopping, acceptor, limits); });
    const auto begin = vigil::clock::now();
    client c(acceptor.connect());
    c.set_deadline(begin + 24h);
    auto reading = vigil::spawn([&] {
      char room[4096];
      error_code error;
      for (std::size_t i = 0; !error; ++i) {
        const std::uint8_t delay =
            i < how.delays.size() ? static_cast<std::uint8_t>(how.delays[i]) : std::uint8_t{0};
        if (delay != 0) {
          heard.sleeps.emplace_back(heard.said.size(), delay % 64 * 1s);
          vigil::sleep_for(delay % 64 * 1s);
        }
        if (delay > 191) return c.close();
        heard.said.append(room, c.read_some(boost::asio::buffer(room), error));
      }
      expect(error == boost::asio::error::eof, "the connection ends");
      heard.end = vigil::clock::now() - begin;
    });
    auto stopper = vigil::spawn([&, stop = stop] {
      if (!how.stops_after) return;
      vigil::sleep_for(*how.stops_after);
      stop();
    });
    send(c, bytes, how, heard);
    reading.join();
    stopper.join();
    heard.is_cut_off =
        how.stops_after && vigil::clock::now() - begin >= *how.stops_after + limits.grace;
    c.close();
    stop();
    serving.join();
    expect(server.connections() == 0 && vigil::stats().fibers_alive == 1, "no fiber is left");
  });
  return heard;
}

// Returns when the byte at this place was sent; max: never.
std::chrono::nanoseconds time_of(const conversation& c, std::size_t at) {
  for (const auto& [size, time] : c.sent) {
    if (at < size) return time;
  }
  return std::chrono::nanoseconds::max();
}

// Checks what depends on time. Caller: no earlier request has held the server up.
void check_times(const conversation& c, const verdict& v, const said_answer& a) {
  const web::options usual;
  const bool has_header = v.header != 0;
  const auto begin = time_of(c, has_header ? v.begin + v.header - 1 : v.begin);
  if (v.what == verdict::waits) {
    expect(c.end == begin + (has_header ? usual.body : usual.header),
           "half a request has its time, which pieces do not move");
  }
  if (v.wants_continue && time_of(c, v.begin + v.header) > begin)
    expect(a.continues == 1, "a client that waits is told to go on");
}

// Holds a conversation against the model. Returns false if the model does not know the
// rest.
bool check(const conversation& c, std::string_view bytes, const manner& how) {
  const auto answers = answers_of(c.said);
  reader model(bytes, limits_of(how));
  std::size_t request = 0;
  std::size_t answer = 0;
  bool may_have_gone = false;
  bool was_slow = false;
  while (const auto v = model.next()) {
    if (v->what == verdict::unknown) return false;
    if (v->what == verdict::handled) {
      if (request == c.requests.size() && may_have_gone) break;
      expect(request < c.requests.size() && c.requests[request] == v->seen,
             "the handler sees the request");
      ++request;
      was_slow = was_slow || v->is_slow;
      may_have_gone = was_slow && how.ends;
    }
    const bool may_wait = v->what == verdict::waits || v->what == verdict::broken;
    if (answer == answers.size()) {
      expect(may_have_gone || (may_wait && how.ends), "a whole request is answered");
      break;
    }
    const said_answer& a = answers[answer++];
    if (v->what == verdict::waits) {
      expect(!how.ends && a.status == 408, "only time ends half a request");
    } else if (v->statuses.empty()) {
      expect(is_refusal(a), "a request that is wrong is refused");
    } else {
      const auto& allowed = v->statuses;
      expect(std::find(allowed.begin(), allowed.end(), a.status) != allowed.end(),
             "the answer has its status");
    }
    expect(a.continues <= (v->wants_continue ? 1u : 0u), "no other client is told to go on");
    if (!was_slow) check_times(c, *v, a);
    if (v->body && a.is_whole) expect(a.text == *v->body, "the answer has its body");
    if (may_have_gone) continue;
    if (v->is_old && !is_last(a))
      expect(field(a.head, "Connection") == "keep-alive", "an old client is told that it is kept");
    expect(is_last(a) == v->is_last || !field(a.head, "X-Broken").empty(),
           "the connection is kept as long as the client wants");
  }
  expect(request == c.requests.size() && answer == answers.size(), "there are no other answers");
  return true;
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

// Checks that a client which takes nothing for longer than a write may last gets what the
// pipe holds, and no more. Before the server waits for it, handlers may have slept.
// `certain`: the size of the answers that do not depend on time.
void check_cut_off(const conversation& slow, const manner& how, std::size_t certain) {
  const auto handlers = static_cast<std::int64_t>(slow.requests.size() + 1);
  const auto longest = web::options().write + handlers * 400ms;
  for (const auto& [got, time] : slow.sleeps) {
    const std::size_t told = without_continue(slow.said.substr(0, got)).size();
    if (time > longest && certain > told + how.capacity)
      expect(slow.said.size() <= got + how.capacity, "a write ends at its deadline");
  }
}

// `slow`: what a client got that reads late, perhaps too late.
void compare_slow(const conversation& whole, const conversation& slow, const manner& how) {
  const std::string all = without_continue(whole.said);
  check_cut_off(slow, how, certain_size(all));
  std::string got = without_continue(slow.said);
  got.resize(std::min(got.size(), certain_size(all)));
  const auto differs = std::mismatch(got.begin(), got.end(), all.begin(), all.end()).first;
  const auto at = static_cast<std::size_t>(differs - got.begin());
  const std::string_view rest = std::string_view(got).substr(at);
  // While it takes no answer, the time for its next header passes: 408, whose first
  // digits the other answer may have.
  bool is_too_late = false;
  for (std::size_t digits = 0; digits <= std::min<std::size_t>(at, 2); ++digits) {
    const std::string_view status = std::string_view(got).substr(at - digits, 4);
    is_too_late = is_too_late || std::string_view("408 ").starts_with(status);
  }
  // It may have been cut off in the middle of such a line.
  expect(rest.empty() || is_too_late ||
             std::string_view("HTTP/1.1 100 Continue\r\n\r\n").starts_with(rest) ||
             std::string_view("100 Continue\r\n\r\n").starts_with(rest),
         "a slow client gets the beginning of the answers");
}

// `stopped`: by a server that stops meanwhile.
void compare_stopped(const conversation& whole, const conversation& stopped) {
  expect(stopped.requests.size() <= whole.requests.size() &&
             std::equal(stopped.requests.begin(), stopped.requests.end(), whole.requests.begin()),
         "a server that stops sees the first requests");
  const auto all = answers_of(whole.said);
  const auto some = answers_of(stopped.said, stopped.is_cut_off);
  expect(stopped.is_cut_off || some.empty() || some.back().is_whole,
         "an answer that has begun is sent whole");
  for (std::size_t i = 0; i + 1 < some.size(); ++i)
    expect(i < all.size() && all[i].status == some[i].status, "and answers them as ever");
}

template <class F>
bool throws_invalid(F f) {
  try {
    f();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

void check_options(std::uint8_t which) {
  expect(throws_invalid([which] {
           web::options o;
           std::chrono::nanoseconds* const times[] = {
               &o.idle, &o.header, &o.body, &o.write, &o.linger};
           if (which % 6 < 5) {
             *times[which % 6] = std::chrono::nanoseconds(-std::int64_t{which});
           } else {
             o.header_bytes = which;
           }
           const web::server refused([](const auto&, auto&, const auto&) {}, o);
         }),
         "options that mean nothing are refused");
  bool is_wrong_place = false;
  try {
    const web::server outside([](const auto&, auto&, const auto&) {});
  } catch (const vigil::wrong_place&) {
    is_wrong_place = true;
  }
  expect(is_wrong_place, "a server needs a runtime");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  manner whole;
  const std::uint8_t flags = in.byte();
  const std::uint8_t more = in.byte();
  const auto has = [](std::uint8_t of, unsigned bit) { return (of >> bit & 1) != 0; };
  if (has(more, 5)) check_options(in.byte());
  whole.has_small_limits = has(flags, 0);
  whole.has_no_time_limits = has(more, 0);
  whole.ends = has(flags, 1) || whole.has_no_time_limits;
  whole.receives_all = has(flags, 5);
  whole.tells_idle = !has(more, 2);
  whole.has_short_idle = has(more, 3);
  whole.keeps_idle_once = has(more, 4);
  manner cut = whole;
  // Somebody that has gone is seen at another moment of the answer.
  cut.pauses = has(flags, 2) && !whole.ends;
  if (has(flags, 3)) cut.capacity = 16;
  if (has(more, 1)) cut.stops_after = std::chrono::milliseconds(in.byte());
  cut.has_short_grace = has(more, 6);
  const bool is_slow = has(flags, 4);
  (is_slow ? cut.delays : cut.pieces) = in.text(in.byte() % 64);
  const std::string_view bytes = in.rest();
  whole.may_be_too_long = whole.has_small_limits || bytes.size() > web::options().header_bytes;
  const conversation one = talk(bytes, whole);
  const conversation other = talk(bytes, cut);
  const bool is_known = check(one, bytes, whole);
  if (cut.stops_after) {
    if (is_known && !whole.ends && !is_slow) compare_stopped(one, other);
  } else if (!is_slow && is_known) {
    check(other, bytes, cut);
    compare(one, other, whole);
  } else if (!whole.ends && !whole.has_small_limits) {
    compare_slow(one, other, cut);
  }
  return 0;
}
