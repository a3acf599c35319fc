// The parts of RFC 9110 and 9112 that http_model.hpp reads by, and the target live_page:
// tokens, lists, numbers, authorities and the extensions of chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>

namespace fuzz::http {

inline bool is_token(std::string_view s) {
  const std::string_view others = "!#$%&'*+-.^_`|~";
  return !s.empty() && std::all_of(s.begin(), s.end(), [others](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           others.find(c) != others.npos;
  });
}

inline bool is_text(std::string_view s) {
  return std::all_of(s.begin(), s.end(), [](char c) {
    const auto b = static_cast<std::uint8_t>(c);
    return c == '\t' || (b >= 32 && b != 127);
  });
}

inline bool is_target(std::string_view s) {
  return !s.empty() && is_text(s) && s.find_first_of(" \t") == s.npos;
}

inline std::string small(std::string_view s) {
  std::string out(s);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

inline std::string_view trimmed(std::string_view s) {
  const std::size_t from = s.find_first_not_of(" \t");
  if (from == s.npos) return {};
  return s.substr(from, s.find_last_not_of(" \t") + 1 - from);
}

// The elements of a list, in small letters, even empty ones.
inline std::vector<std::string> elements(std::string_view s) {
  std::vector<std::string> all;
  for (;;) {
    const std::size_t comma = s.find(',');
    all.push_back(small(trimmed(s.substr(0, comma))));
    if (comma == s.npos) return all;
    s.remove_prefix(comma + 1);
  }
}

// `most`: the largest that is a number at all.
inline std::optional<std::uint64_t> number_of(std::string_view s,
                                              unsigned base,
                                              std::uint64_t most) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::uint64_t n = 0;
  for (const char c : small(s)) {
    const std::size_t digit = digits.substr(0, base).find(c);
    if (digit == digits.npos || n > (most - digit) / base) return {};
    n = n * base + digit;
  }
  if (s.empty()) return {};
  return n;
}

inline bool is_port(std::string_view s) {
  return s.empty() || number_of(s, 10, 65535).has_value();
}

// RFC 3986, 3.2.2 and 3.2.3: what a Host field may say.
inline bool is_authority(std::string_view s) {
  if (s.starts_with('[')) {
    const std::size_t end = s.find(']');
    if (end == s.npos) return false;
    in6_addr address{};
    const std::string text(s.substr(1, end - 1));
    if (::inet_pton(AF_INET6, text.c_str(), &address) != 1) return false;
    s.remove_prefix(end + 1);
    return s.empty() || (s.starts_with(':') && is_port(s.substr(1)));
  }
  const std::size_t colon = std::min(s.find(':'), s.size());
  if (colon != s.size() && !is_port(s.substr(colon + 1))) return false;
  for (std::size_t i = 0; i < colon; ++i) {
    if (s[i] == '%') {
      if (colon - i < 3 || !number_of(s.substr(i + 1, 2), 16, 255)) return false;
      i += 2;
    } else if (!is_token({&s[i], 1}) &&
               std::string_view("(),;=").find(s[i]) == std::string_view::npos) {
      return false;
    } else if (std::string_view("#^`|").find(s[i]) != std::string_view::npos) {
      return false;
    }
  }
  return true;
}

// RFC 9112, 7.1.1. A quoted string may hold anything but the end of the line.
inline bool is_extension(std::string_view s) {
  const auto take_space = [&] { s.remove_prefix(std::min(s.find_first_not_of(" \t"), s.size())); };
  const auto take_token = [&] {
    std::size_t n = 0;
    while (n < s.size() && is_token(s.substr(n, 1)))
      ++n;
    s.remove_prefix(n);
    return n != 0;
  };
  while (!s.empty()) {
    take_space();
    if (!s.starts_with(';')) return false;
    s.remove_prefix(1);
    take_space();
    if (!take_token()) return false;
    const std::string_view after = s;
    take_space();
    if (s.empty()) return after.empty();
    if (s.front() != '=') continue;
    s.remove_prefix(1);
    take_space();
    if (!s.starts_with('"')) {
      if (!take_token()) return false;
      continue;
    }
    std::size_t i = 1;
    while (i < s.size() && s[i] != '"')
      i += s[i] == '\\' ? 2 : 1;
    if (i >= s.size()) return false;
    s.remove_prefix(i + 1);
  }
  return true;
}

// A request as the handler sees it. `values`: those of the fields X.
inline std::string seen(const std::vector<std::string_view>& parts,
                        std::size_t count,
                        std::string_view first_value,
                        std::string_view values) {
  std::string all;
  for (const std::string_view part : parts)
    (all += part) += '\n';
  (all += std::to_string(count)) += first_value;
  for (const std::string& e : elements(values)) {
    if (!e.empty()) (all += '\n') += e;
  }
  return all;
}

}  // namespace fuzz::http
