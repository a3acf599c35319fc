// The request and the response, as seen by a handler of the HTTP server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace web {

// A request; complete, except in options::before_body. Its strings live until the
// handler returns.
class request {
 public:
  std::string_view method() const { return text_of(method_); }

  // The target as it was sent: "/a?b", "http://host/a?b", "*" (OPTIONS), "host:1" (CONNECT).
  std::string_view target() const { return text_of(target_); }

  // The target's path, not decoded: "/a"; "/" for "http://host", "*" for "*", "" for CONNECT.
  std::string_view path() const { return text_of(path_); }

  // The part after the first '?', not decoded.
  std::string_view query() const { return text_of(query_); }

  // The target's host, if it names one; otherwise the field Host. It includes the port.
  std::string_view host() const { return text_of(host_); }

  // Returns 10 or 11.
  unsigned version() const { return version_; }

  const std::string& body() const { return body_; }

  // The bytes that the object holds for this request and earlier ones.
  std::size_t memory() const {
    return text_.capacity() + body_.capacity() + fields_.capacity() * sizeof(field);
  }

  // The value of the first field of that name, in capitals or not; "" if there is none.
  std::string_view header(std::string_view name) const;
  // The values of all fields of that name, as one list: "a, b".
  std::string list(std::string_view name) const;
  // The number of fields of that name.
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

// Returns whether a Host field may have this value: a name, an address, an IPv6 address
// in brackets, or nothing; with a port or without.
bool is_host(std::string_view text);

// Asked when a connection has been idle for options::idle: true keeps it for as long
// again, false closes it, and nothing leaves the answer to the next one. First comes the
// last request's (response::keeps_idle), then the connection's, then the server's
// (options::keeps_idle). An empty function does not answer; if there is no answer, the
// connection is closed. It may wait, and an exception closes the connection as one of the
// request's handler does.
using idle_handler = std::function<std::optional<bool>()>;

class connection;

// The answer. Call either send(), once, or write(), as often as there is something. If
// the client has gone or is too slow, they throw a boost::system::system_error, which the
// handler should let pass. A second answer throws std::logic_error.
class response {
 public:
  unsigned status = 200;

  // The request's: asked until the next request begins.
  idle_handler keeps_idle;

  // Sets the connection's: asked until it is replaced.
  void set_connection_keeps_idle(idle_handler f);

  // Throws std::invalid_argument if it contains the end of a line. Date, Content-Length,
  // Transfer-Encoding and Connection are the server's.
  void set(std::string_view name, std::string_view value);

  // Sends the whole body.
  void send(std::string_view body);

  // Sends a part of the body now. An HTTP/1.1 client gets chunks; for an older one the
  // end of the connection is the end of the body.
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
  bool has_body_ = false;   // the stream has one; not after a HEAD
  bool is_chunked_ = false;
};

}  // namespace web
