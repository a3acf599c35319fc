// Beast's parser, filling in a web::request.
#pragma once

#include "message.hpp"

#include <cstdint>
#include <limits>
#include <string_view>

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

namespace web {

namespace http = boost::beast::http;

class parser final : public http::basic_parser<true> {
 public:
  // The connection limits the size of headers: basic_parser does not count bytes that it
  // has already consumed, so a client might go on for ever.
  //
  // The parser stops after the header until eager(true), so put() has counted only the
  // header.
  parser(request& into, std::size_t body_bytes) : into_(into) {
    into_.clear();
    header_limit(std::numeric_limits<std::uint32_t>::max());
    body_limit(body_bytes);
  }

  // The size of the request line, including its end; 0 until it has come in whole.
  std::size_t line_size() const { return line_size_; }

 private:
  using error_code = boost::beast::error_code;
  using string_view = boost::beast::string_view;

  static std::string_view own(string_view s) { return {s.data(), s.size()}; }

  void on_request_impl(
      http::verb, string_view method, string_view target, int version, error_code&) override {
    into_.method_ = into_.keep(own(method));
    into_.target_ = into_.keep(own(target));
    into_.version_ = static_cast<unsigned>(version);
    line_size_ = method.size() + target.size() + std::string_view("  HTTP/1.1\r\n").size();
  }

  void on_field_impl(http::field, string_view name, string_view value, error_code&) override {
    if (is_header_done()) return;  // in a trailer, which could claim anything of the header
    into_.fields_.push_back({into_.keep(own(name)), into_.keep(own(value))});
  }

  void on_header_impl(error_code& error) override {
    if (!into_.split_target()) error = http::error::bad_target;
  }

  std::size_t on_body_impl(string_view part, error_code&) override {
    into_.body_.append(part.data(), part.size());
    return part.size();
  }

  std::size_t on_chunk_body_impl(std::uint64_t, string_view part, error_code& error) override {
    return on_body_impl(part, error);
  }

  void on_response_impl(int, string_view, int, error_code&) override {}

  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}

  void on_chunk_header_impl(std::uint64_t, string_view, error_code&) override {}

  void on_finish_impl(error_code&) override {}

  request& into_;
  std::size_t line_size_ = 0;
};

}  // namespace web
