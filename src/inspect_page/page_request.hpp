// page_request: a request to a live page, and the rules that decide whether it is served.
//
// The danger. Any page that a browser shows may send requests to a loopback address, and
// a name of its owner's may be pointed there after it was loaded (DNS rebinding), so that
// the browser takes the answers for that page's own.
//
// The rule. A request must name this machine by a loopback address or as `localhost`,
// which no name server can redirect. Acting needs a token that only the terminal has
// shown, too, and, if the browser says which page sends the request, that page must be
// this one. No answer allows another origin to read it.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <netinet/in.h>

namespace VIGIL_DETAIL {

enum class page_method : std::uint8_t { get, head, post, other };

struct page_request {
  page_method method = page_method::other;
  std::string target;  // the path alone
  std::string query;   // what follows its `?`
  std::string host;    // "" if there is none, or more than one
  std::optional<std::string> origin;
  std::string token;
};

struct page_rules {
  bool is_exposed = false;  // then every literal address is allowed as a host
  std::string host_name;    // one more name; "" is none
  std::string token;
};

bool is_loopback(const in_addr& a) noexcept;
bool is_loopback(const in6_addr& a) noexcept;

// Whether a page may be asked for under this name, which may have a port.
bool is_allowed_host(std::string_view host, const page_rules& rules);

// Whether a request that acts comes from the page itself, or from no browser: then there
// is no origin.
bool is_own_origin(const page_request& request);

// Compares in a time that does not depend on where the two differ.
bool is_same_token(std::string_view given, std::string_view token) noexcept;

// 128 random bits, as 32 hexadecimal digits. Throws std::system_error.
std::string random_digits();

}  // namespace VIGIL_DETAIL
