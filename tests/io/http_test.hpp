// A server in memory, on virtual time, for the tests of examples/io/http_server.
#pragma once

#include "http_server/client.hpp"
#include "http_server/server.hpp"
#include "http_server/site.hpp"
#include "io/io_test.hpp"

#include <vigil/io/memory_acceptor.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace vigil::http_testing {

using namespace vigil::io_testing;
using vigil::clock;

inline constexpr std::string_view hello = "GET /hello HTTP/1.1\r\nHost: test\r\n\r\n";

using memory_client = web::client<vigil::io::memory_stream>;

class site {
 public:
  explicit site(web::options how = {},
                web::handler answer = web::answer_site,
                vigil::io::serve_limits limits = {})
      : server_(std::move(answer), std::move(how)),
        stopping_(vigil::with_cancel(vigil::background())),
        serving_(vigil::spawn([this, limits = std::move(limits)] {
          server_.serve(stopping_.ctx, acceptor_, limits);
        })) {}

  ~site() {
    stop();
    if (serving_.joinable()) serving_.join();
  }

  site(const site&) = delete;
  site& operator=(const site&) = delete;

  memory_client connect() { return memory_client(connect_stream()); }

  vigil::io::memory_stream connect_stream() { return acceptor_.connect(); }

  void stop() { stopping_.cancel(); }

  void close_acceptor() { acceptor_.close(); }

  // Waits until the server has ended.
  void join() { serving_.join(); }

  web::server& server() { return server_; }

  // Sends the text as a client of its own and returns the answer.
  web::reply ask(std::string_view text) {
    memory_client c = connect();
    c.send(text);
    return c.receive();
  }

 private:
  web::server server_;
  vigil::io::memory_acceptor acceptor_;
  vigil::cancellable stopping_;
  vigil::fiber<> serving_;
};

// A request with these header lines.
inline std::string request_of(std::string_view fields,
                              std::string_view line = "GET /hello HTTP/1.1") {
  return std::string(line) + "\r\nHost: test\r\n" + std::string(fields) + "\r\n";
}

// A POST with these header lines and this body.
inline std::string post_of(std::string_view fields,
                           std::string_view body,
                           std::string_view path = "/echo") {
  return request_of(fields, "POST " + std::string(path) + " HTTP/1.1") + std::string(body);
}

// The status of a refused request, after which the connection takes nothing more.
inline unsigned refused(site& s, std::string_view text) {
  auto c = s.connect();
  c.send(text);
  const auto a = c.receive();
  CHECK(a["Connection"] == "close");
  CHECK(c.is_closed());
  return a.result_int();
}

// The time until the server closes the connection.
inline std::chrono::nanoseconds time_to_close(memory_client& c) {
  const auto start = clock::now();
  CHECK(c.is_closed());
  return since(start);
}

// Sends a byte, and another after each `pause`, until the server closes the connection or
// all are sent. Returns how many were sent.
inline std::size_t drip(memory_client& c, std::string_view text, std::chrono::nanoseconds pause) {
  std::size_t sent = 0;
  try {
    for (; sent < text.size(); ++sent) {
      if (sent != 0) vigil::sleep_for(pause);
      c.send(text.substr(sent, 1));
    }
  } catch (const boost::system::system_error&) {
  }
  return sent;
}

}  // namespace vigil::http_testing
