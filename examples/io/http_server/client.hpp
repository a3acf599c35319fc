// A client for tests, which sends any text that it is given: one connection, any stream.
#pragma once

#include <vigil/io/deadline_stream.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

namespace web {

namespace http = boost::beast::http;

using reply = http::response<http::string_body>;

template <class Stream>
class client {
 public:
  explicit client(Stream s) : stream_(std::move(s)) {}

  vigil::io::deadline_stream<Stream>& stream() { return stream_; }

  // Throws boost::system::system_error, like all functions here.
  void send(std::string_view text) {
    boost::asio::write(stream_, boost::asio::buffer(text.data(), text.size()));
  }

  void get(std::string_view target, std::string_view fields = {}) {
    send("GET " + std::string(target) + " HTTP/1.1\r\nHost: test\r\n" + std::string(fields) +
         "\r\n");
  }

  // Returns the next answer, even an interim one.
  reply receive(bool is_of_head = false) {
    http::response_parser<http::string_body> p;
    p.skip(is_of_head);
    p.body_limit(boost::none);
    http::read(stream_, in_, p);
    return p.release();
  }

  // Whether bytes have been read beyond the last answer.
  bool has_more() const { return in_.size() != 0; }

  // Waits for the end. Returns true if it comes, and nothing before it, and closes this
  // end as well, for which the server waits.
  bool is_closed() {
    if (in_.size() != 0 || !reads_end()) return false;
    stream_.close();
    return true;
  }

  // The same, but leaves this end open.
  bool reads_end() {
    char byte = 0;
    boost::system::error_code error;
    stream_.read_some(boost::asio::buffer(&byte, 1), error);
    return error == boost::asio::error::eof;
  }

 private:
  vigil::io::deadline_stream<Stream> stream_;
  boost::beast::flat_buffer in_;
};

}  // namespace web
