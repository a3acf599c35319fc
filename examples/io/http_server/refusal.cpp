#include "refusal.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/rfc7230.hpp>

namespace web {

namespace http = boost::beast::http;

namespace {

// Returns the answer to a Transfer-Encoding that is refused; 0: none. The end of the body
// must not be guessed, since a proxy may have guessed otherwise: only chunks can be read.
unsigned status_of_coding(const request& in) {
  if (in.version() < 11) return 400;
  const std::string all = in.list("Transfer-Encoding");
  std::size_t chunked = 0;
  for (std::string_view rest = all; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view coding = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    while (!coding.empty() && (coding.front() == ' ' || coding.front() == '\t'))
      coding.remove_prefix(1);
    while (!coding.empty() && (coding.back() == ' ' || coding.back() == '\t'))
      coding.remove_suffix(1);
    if (coding.empty()) continue;
    if (!boost::beast::iequals(coding, "chunked")) return 501;
    ++chunked;
  }
  return chunked == 1 ? 0 : 400;
}

}  // namespace

unsigned status_of(const boost::system::error_code& e) {
  if (e == http::error::body_limit) return 413;
  if (e == http::error::bad_version) return 505;
  return 400;
}

bool expects_continue(const request& in) {
  return boost::beast::iequals(in.header("Expect"), "100-continue");
}

bool says_close(const request& in) {
  return http::token_list(in.list("Connection")).exists("close");
}

unsigned status_of(const request& in) {
  const std::size_t hosts = in.count("Host");
  if (hosts > 1 || (hosts == 0 && in.version() > 10)) return 400;
  if (hosts == 1 && !is_host(in.header("Host"))) return 400;
  if (in.count("Transfer-Encoding") != 0) {
    if (const unsigned status = status_of_coding(in)) return status;
  }
  if (in.count("Expect") != 0 && !expects_continue(in)) return 417;
  return 0;
}

}  // namespace web
