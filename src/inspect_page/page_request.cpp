#include "inspect_page/page_request.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include <arpa/inet.h>
#include <strings.h>
#include <sys/random.h>

namespace VIGIL_DETAIL {
namespace {

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool is_port(std::string_view s) noexcept {
  return !s.empty() && s.size() <= 5 &&
         std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Takes a port off the end. False if there is something else.
bool take_port(std::string_view& host) noexcept {
  const std::size_t end = host.starts_with('[') ? host.find(']') : host.find(':');
  if (host.starts_with('[') && end == std::string_view::npos) return false;
  const std::size_t name_end = host.starts_with('[') ? end + 1 : std::min(end, host.size());
  const std::string_view rest = host.substr(name_end);
  host = host.substr(0, name_end);
  return rest.empty() || (rest.front() == ':' && is_port(rest.substr(1)));
}

}  // namespace

bool is_loopback(const in_addr& a) noexcept {
  return ntohl(a.s_addr) >> 24 == 127;
}

bool is_loopback(const in6_addr& a) noexcept {
  if (IN6_IS_ADDR_V4MAPPED(&a)) return a.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&a);
}

bool is_allowed_host(std::string_view host, const page_rules& rules) {
  if (!take_port(host) || host.empty()) return false;
  if (equal_ignoring_case(host, "localhost")) return true;
  if (!rules.host_name.empty() && equal_ignoring_case(host, rules.host_name)) return true;
  if (host.front() == '[') {
    in6_addr v6{};
    const std::string literal(host.substr(1, host.size() - 2));
    return ::inet_pton(AF_INET6, literal.c_str(), &v6) == 1 &&
           (rules.is_exposed || is_loopback(v6));
  }
  in_addr v4{};
  return ::inet_pton(AF_INET, std::string(host).c_str(), &v4) == 1 &&
         (rules.is_exposed || is_loopback(v4));
}

bool is_own_origin(const page_request& request) {
  return !request.origin || equal_ignoring_case(*request.origin, "http://" + request.host);
}

bool is_same_token(std::string_view given, std::string_view token) noexcept {
  if (given.size() != token.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < token.size(); ++i)
    difference |= static_cast<unsigned>(given[i]) ^ static_cast<unsigned>(token[i]);
  return difference == 0;
}

std::string random_digits() {
  std::uint8_t bytes[16];
  // So few bytes come at once, all or none.
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    throw std::system_error(errno, std::generic_category(), "vigil::inspect::serve: getrandom");
  }
  std::string digits;
  for (const std::uint8_t b : bytes) {
    digits += "0123456789abcdef"[b >> 4];
    digits += "0123456789abcdef"[b & 15];
  }
  return digits;
}

}  // namespace VIGIL_DETAIL
