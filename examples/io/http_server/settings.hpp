// The settings on the command line.
#pragma once

#include "server.hpp"

#include <charconv>
#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace web {

struct settings {
  unsigned short port = 0;
  bool tests_itself = false;
  options times;
  std::size_t workers = 0;
};

// Throws std::invalid_argument unless `text` is a whole number from `least` to `most`.
inline long read_number(std::string_view name, std::string_view text, long least, long most) {
  long n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < least || n > most) {
    throw std::invalid_argument(std::string(name) + " is \"" + std::string(text) +
                                "\"; it must be a whole number from " + std::to_string(least) +
                                " to " + std::to_string(most));
  }
  return n;
}

// Throws std::invalid_argument for an unknown option.
inline settings read_settings(int argc, const char* const* argv) {
  constexpr long most_seconds = 1'000'000'000;  // thirty years
  constexpr long most_workers = 1024;
  settings s;
  bool has_port = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    const auto value_of = [&](std::string_view key) -> std::optional<std::string_view> {
      if (!text.starts_with(key) || !text.substr(key.size()).starts_with('=')) return {};
      return text.substr(key.size() + 1);
    };
    if (text == "--self-test") {
      s.tests_itself = true;
    } else if (const auto idle = value_of("--idle")) {
      s.times.idle = std::chrono::seconds(read_number("--idle", *idle, 1, most_seconds));
    } else if (const auto header = value_of("--header")) {
      s.times.header = std::chrono::seconds(read_number("--header", *header, 1, most_seconds));
    } else if (const auto workers = value_of("--workers")) {
      s.workers = static_cast<std::size_t>(read_number("--workers", *workers, 0, most_workers));
    } else if (text.starts_with("--") || has_port) {
      throw std::invalid_argument("unknown option " + std::string(text));
    } else {
      s.port = static_cast<unsigned short>(read_number("PORT", text, 0, 65535));
      has_port = true;
    }
  }
  return s;
}

}  // namespace web
