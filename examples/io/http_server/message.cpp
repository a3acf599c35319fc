#include "message.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include <boost/asio/ip/address_v6.hpp>
#include <boost/beast/core/string.hpp>

namespace web {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// RFC 3986: reg-name; an IPv4 address is one as well.
bool is_name(std::string_view text) {
  constexpr std::string_view others = "-._~!$&'()*+,;=";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_letter(c) || is_digit(c) || others.find(c) != others.npos) continue;
    if (c != '%' || text.size() - i < 3 || !is_hex(text[i + 1]) || !is_hex(text[i + 2])) {
      return false;
    }
    i += 2;
  }
  return true;
}

bool is_port(std::string_view text) {
  if (text.empty()) return true;
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size();
}

// A zone ("%eth0") is the client's own affair, and is never sent.
bool is_address_v6(std::string_view text) {
  boost::system::error_code error;
  boost::asio::ip::make_address_v6(std::string(text), error);
  return !error && text.find('%') == text.npos;
}

// Returns the size of "http://" or "https://"; 0: it is neither.
std::size_t scheme_size(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (boost::beast::iequals(target.substr(0, scheme.size()), scheme)) return scheme.size();
  }
  return 0;
}

}  // namespace

bool is_host(std::string_view text) {
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == text.npos || !is_address_v6(text.substr(1, end - 1))) return false;
    const std::string_view rest = text.substr(end + 1);
    return rest.empty() || (rest.starts_with(':') && is_port(rest.substr(1)));
  }
  const std::size_t colon = text.find(':');
  return is_name(text.substr(0, colon)) && (colon == text.npos || is_port(text.substr(colon + 1)));
}

std::string_view request::header(std::string_view name) const {
  for (const field& f : fields_) {
    if (boost::beast::iequals(text_of(f.name), name)) return text_of(f.value);
  }
  return {};
}

std::string request::list(std::string_view name) const {
  std::string all;
  for (const field& f : fields_) {
    if (!boost::beast::iequals(text_of(f.name), name)) continue;
    if (!all.empty()) all += ", ";
    all += text_of(f.value);
  }
  return all;
}

std::size_t request::count(std::string_view name) const {
  const auto n = std::count_if(fields_.begin(), fields_.end(), [&](const field& f) {
    return boost::beast::iequals(text_of(f.name), name);
  });
  return static_cast<std::size_t>(n);
}

request::part request::keep(std::string_view text) {
  const part kept{text_.size(), text.size()};
  text_.append(text);
  return kept;
}

// RFC 9112, 3.2. Returns false if the target has none of the four forms.
bool request::split_target() {
  const std::string_view all = target();
  for (const field& f : fields_) {
    if (boost::beast::iequals(text_of(f.name), "Host")) host_ = f.value;
  }
  const auto cut = [&](std::size_t from, std::size_t to) {
    return part{target_.from + from, to - from};
  };
  if (method() == "CONNECT") {
    host_ = target_;
    const std::size_t port = std::min(all.rfind(':'), all.size());
    const bool has_port = port != all.size() && all.find(']', port) == all.npos;
    return has_port && port != 0 && is_host(all);
  }
  if (all == "*") {
    path_ = target_;
    return method() == "OPTIONS";
  }
  std::size_t at = 0;
  if (!all.starts_with('/')) {
    const std::size_t from = scheme_size(all);
    if (from == 0) return false;
    at = std::min(all.find_first_of("/?", from), all.size());
    host_ = cut(from, at);
    if (host_.size == 0 || host().starts_with(':') || !is_host(host())) return false;
  }
  const std::size_t mark = std::min(all.find('?', at), all.size());
  path_ = mark == at ? keep("/") : cut(at, mark);
  if (mark != all.size()) query_ = cut(mark + 1, all.size());
  return true;
}

// Keeps small memory for the next request, but not large memory.
void request::clear() {
  constexpr std::size_t small = 4096;
  text_.clear();
  fields_.clear();
  body_.clear();
  method_ = target_ = path_ = query_ = host_ = {};
  version_ = 11;
  if (body_.capacity() > small) body_.shrink_to_fit();
  if (text_.capacity() > small) text_.shrink_to_fit();
}

}  // namespace web
