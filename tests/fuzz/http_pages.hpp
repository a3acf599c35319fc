// The pages that the target http_server asks for, and what their handler sees.
#pragma once

#include "fuzz/http_model.hpp"
#include "http_server/server.hpp"
#include "http_server/site.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fuzz::http {

using namespace std::chrono_literals;

// The site of the example; and pages that answer in the other ways there are.
inline void answer(const web::request& in, web::response& out, const vigil::context& ctx) {
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
  } else if (in.path() == "/deaf") {
    vigil::sleep_for(20ms);  // whatever becomes of the client
  } else if (in.path() == "/switch") {
    out.status = 101;
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

inline std::string seen_by_handler(const web::request& in) {
  const std::string_view version = in.version() == 10 ? "10" : "11";
  return seen({in.method(), in.target(), in.path(), in.query(), in.host(), version, in.body()},
              in.count("X"),
              in.header("X"),
              in.list("X"));
}

}  // namespace fuzz::http
