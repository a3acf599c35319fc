// The answer as the handler writes it; connection.cpp sends it.
#include "connection.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include <boost/beast/core/string.hpp>

namespace web {
namespace {

void append_number(std::string& to, std::uint64_t n, int base = 10) {
  char digits[24];
  to.append(digits, std::to_chars(digits, digits + sizeof digits, n, base).ptr);
}

bool has_no_body(unsigned status) {
  return status < 200 || status == 204 || status == 304;
}

}  // namespace

void response::set(std::string_view name, std::string_view value) {
  const auto ends_line = [](char c) { return c == '\r' || c == '\n'; };
  if (name.empty() || std::any_of(name.begin(), name.end(), ends_line) ||
      std::any_of(value.begin(), value.end(), ends_line)) {
    throw std::invalid_argument(
        "web::response::set: a field needs a name, and must not hold the end of a line");
  }
  if (boost::beast::iequals(name, "Keep-Alive")) own_keep_alive_ = true;
  fields_.append(name).append(": ").append(value).append("\r\n");
}

void response::set_connection_keeps_idle(idle_handler f) {
  to_.between_.ask_for_connection(std::move(f));
}

// Returns false if no body goes with it.
bool response::begin(std::string_view length_field) {
  if (has_begun_) throw std::logic_error("web::response: the answer has begun already");
  has_begun_ = true;
  to_.begin_answer(status, fields_, own_keep_alive_);
  if (!has_no_body(status)) to_.out_ += length_field;
  to_.out_ += "\r\n";
  return !to_.is_head_ && !has_no_body(status);
}

void response::send(std::string_view body) {
  std::string length = "Content-Length: ";
  append_number(length, body.size());
  length += "\r\n";
  if (begin(length)) to_.send(body);
}

void response::write(std::string_view part) {
  if (!has_begun_) {
    const bool knows_chunks = to_.request_.version() > 10;
    if (!knows_chunks) to_.keep_ = false;
    has_body_ = begin(knows_chunks ? "Transfer-Encoding: chunked\r\n" : "");
    is_chunked_ = has_body_ && knows_chunks;
    is_stream_ = true;
  }
  if (!is_stream_) throw std::logic_error("web::response: the answer was sent already");
  if (has_body_ && !part.empty()) {
    if (is_chunked_) {
      append_number(to_.out_, part.size(), 16);
      to_.out_ += "\r\n";
    }
    to_.send(part);
    if (is_chunked_) to_.out_ += "\r\n";
  }
  to_.flush();
}

void response::end() {
  if (!has_begun_) send({});
  if (is_chunked_) to_.send("0\r\n\r\n");
}

}  // namespace web
