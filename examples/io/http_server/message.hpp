// The request and the response, as a handler of the HTTP server sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace web {

// A complete request. Its strings live until the handler returns.
class request {
 public:
  std::string_view method() const { return text_of(method_); }

  // As it was sent: "/a?b", "http://host/a?b", "*" (of OPTIONS) or "host:1" (of CONNECT).
  std::string_view target() const { return text_of(target_); }

  // Its path, not decoded: "/a"; "/" of "http://host", "*" of "*", "" of a CONNECT.
  std::string_view path() const { return text_of(path_); }

  // The part after the first '?', not decoded.
  std::string_view query() const { return text_of(query_); }

  // The target's, if it names one; otherwise the field Host. With its port.
  std::string_view host() const { return text_of(host_); }

  // 10 or 11.
  unsigned version() const { return version_; }

  const std::string& body() const { return body_; }

  // The value of the first field of that name, in capitals or not; "" if there is
  // none.
  std::string_view header(std::string_view name) const;
  // The values of all fields of that name, as one list: "a, b".
  std::string list(std::string_view name) const;
  // How many fields have that name.
  std::size_t count(std::string_view name) const;

 private:
  friend class parser;

  // A part of `text_`.
  struct part {
    std::size_t from = 0;
    std::size_t size = 0;
  };

  struct field {
    part name;
    part value;
  };

  std::string_view text_of(part p) const { return std::string_view(text_).substr(p.from, p.size); }

  part keep(std::string_view text);
  bool split_target();
  void clear();

  std::string text_;  // everything but the body; kept from one request to the next
  part method_;
  part target_;
  part path_;
  part query_;
  part host_;
  std::vector<field> fields_;
  unsigned version_ = 11;
  std::string body_;
};

// Whether it is what a Host field may say: a name, an address, an IPv6 address in
// brackets, or nothing; with a port or without.
bool is_host(std::string_view text);

class connection;

// The answer. Either send(), once, or write(), as often as there is something. If the
// client has gone or is too slow they throw a boost::system::system_error, which is to
// leave the handler. A second answer is a std::logic_error.
class response {
 public:
  unsigned status = 200;

  // Throws std::invalid_argument if a line ends in it. Date, Content-Length,
  // Transfer-Encoding and Connection are the server's.
  void set(std::string_view name, std::string_view value);

  // The whole body.
  void send(std::string_view body);

  // A part of the body, which the client gets now. An HTTP/1.1 client gets chunks,
  // an older one the end of the connection as the end of the body.
  void write(std::string_view part);

 private:
  friend class connection;

  explicit response(connection& to) : to_(to) {}

  bool begin(std::string_view length_field);
  void end();

  connection& to_;
  std::string fields_;
  bool own_keep_alive_ = false;
  bool has_begun_ = false;
  bool is_stream_ = false;  // begun by write()
  bool has_body_ = false;   // of the stream; not after a HEAD
  bool is_chunked_ = false;
};

}  // namespace web
