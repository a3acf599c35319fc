#include "inspect_page/page_http.hpp"

#include <vigil/clock.hpp>
#include <vigil/fiber.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_static_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>

namespace VIGIL_DETAIL {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr std::size_t head_limit = 8192;
constexpr std::chrono::seconds time_to_take(60);
constexpr std::chrono::seconds time_to_leave(1);
// A piece is copied to the kernel in some microseconds.
constexpr std::size_t piece = std::size_t{64} << 10;

using head_parser = http::request_parser<http::empty_body>;

page_method method_of(http::verb v) noexcept {
  switch (v) {
    case http::verb::get:
      return page_method::get;
    case http::verb::head:
      return page_method::head;
    case http::verb::post:
      return page_method::post;
    default:
      return page_method::other;
  }
}

std::optional<page_answer> refusal_of(const boost::system::error_code& error) {
  if (error == asio::error::timed_out) {
    return text_answer(408, "The head of a request must arrive within five seconds.\n");
  }
  if (error == http::error::header_limit) {
    return text_answer(431, "The head of a request may have 8 KiB.\n");
  }
  if (error == http::error::body_limit) return text_answer(413, "No request has a body here.\n");
  if (error.category() == http::make_error_code(http::error::bad_method).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return text_answer(400, "This is no request of HTTP/1.1.\n");
  }
  return std::nullopt;
}

page_request request_of(const head_parser& parser) {
  const auto& message = parser.get();
  page_request r;
  r.method = method_of(message.method());
  const std::string_view target = message.target();
  const std::size_t path_end = std::min(target.find('?'), target.size());
  r.target = std::string(target.substr(0, path_end));
  r.query = std::string(target.substr(std::min(path_end + 1, target.size())));
  if (message.count(http::field::host) == 1) r.host = std::string(message[http::field::host]);
  if (message.count(http::field::origin) != 0) {
    r.origin = std::string(message[http::field::origin]);
  }
  if (message.count("X-Vigil-Token") == 1) r.token = std::string(message["X-Vigil-Token"]);
  return r;
}

// Every answer: nothing is kept in caches, framed, guessed at, or read by other origins.
constexpr std::string_view common_fields =
    "Cache-Control: no-store\r\n"
    "Connection: close\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n";

// The page brings its own; all else is data, which does nothing.
constexpr std::string_view policy_of_data =
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'; sandbox\r\n";

std::string head_of(const page_answer& answer) {
  std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " ";
  head += std::string_view(http::obsolete_reason(static_cast<http::status>(answer.status)));
  head += "\r\n";
  head += common_fields;
  if (answer.fields.find("Content-Security-Policy") == std::string::npos) head += policy_of_data;
  head += answer.fields;
  head.append("Content-Type: ").append(answer.type);
  head += "\r\nContent-Length: " + std::to_string(answer.body->size()) + "\r\n\r\n";
  return head;
}

// A socket that is closed with bytes unread makes the kernel drop what the peer has not
// read yet.
void take_leave(page_stream& peer) {
  boost::system::error_code error;
  peer.close_write(error);
  peer.set_read_deadline(clock::now() + time_to_leave);
  char rest[1024];
  for (int i = 0; i < 64 && !error; ++i)
    peer.read_some(asio::buffer(rest), error);
}

}  // namespace

page_answer text_answer(unsigned status, std::string text, std::string fields) {
  page_answer a;
  a.status = status;
  a.body = std::make_shared<const std::string>(std::move(text));
  a.fields = std::move(fields);
  return a;
}

std::optional<page_request> read_request(page_stream& peer,
                                         std::optional<page_answer>& refusal,
                                         std::chrono::nanoseconds time) {
  boost::beast::flat_static_buffer<head_limit> room;  // is full only at the parser's own limit
  head_parser parser;
  parser.header_limit(head_limit);
  peer.set_read_deadline(clock::now() + time);
  boost::system::error_code error;
  http::read_header(peer, room, parser, error);
  if (error) {
    refusal = refusal_of(error);
    return std::nullopt;
  }
  if (parser.chunked() || parser.content_length().value_or(0) != 0) {
    refusal = text_answer(413, "No request has a body here.\n");
    return std::nullopt;
  }
  return request_of(parser);
}

void write_answer(page_stream& peer,
                  const page_answer& answer,
                  bool is_head,
                  waiting_peers::member& self) {
  peer.set_write_deadline(clock::now() + time_to_take);
  boost::system::error_code error;
  asio::write(peer, asio::buffer(head_of(answer)), error);
  const std::string& body = *answer.body;
  for (std::size_t sent = 0; !is_head && !error && sent < body.size();) {
    const std::size_t n = std::min(piece, body.size() - sent);
    sent += asio::write(peer, asio::buffer(body.data() + sent, n), error);
    self.waits_for_peer();
    // A peer that keeps up never makes it wait.
    this_fiber::yield();
  }
  if (!error) take_leave(peer);
}

}  // namespace VIGIL_DETAIL
