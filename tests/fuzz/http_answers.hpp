// Reads the answers of the HTTP server's target: each must be one of HTTP/1.1. The live
// page's target reads the fields of its own by it.
#pragma once

#include "fuzz/input.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace fuzz::http {

inline constexpr std::string_view begin_of_head = "HTTP/1.1 ";

struct said_answer {
  unsigned status = 0;
  std::string_view head;
  std::string_view body;
  std::string text;           // the body without what frames its chunks
  std::size_t continues = 0;  // how many of 100 come before it
  bool is_whole = true;
};

// The value of a field whose name the server writes just so; "" if it is not there.
inline std::string_view field(std::string_view head, std::string_view name) {
  const std::size_t at = head.find("\r\n" + std::string(name) + ": ");
  if (at == head.npos) return {};
  const std::size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

inline std::size_t number(std::string_view text, int base) {
  std::size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n, base);
  expect(error == std::errc() && end == text.data() + text.size(), "a size is a number");
  return n;
}

// Takes the chunks of a body, whose data go into `data`. False if the end is missing.
inline bool take_chunks(std::string_view& text, std::string& data) {
  for (;;) {
    const std::size_t line = text.find("\r\n");
    if (line == text.npos) return false;
    const std::size_t size = number(text.substr(0, line), 16);
    text.remove_prefix(line + 2);
    if (text.size() < size + 2) return false;
    expect(text.substr(size, 2) == "\r\n", "a chunk has an end");
    data += text.substr(0, size);
    text.remove_prefix(size + 2);
    if (size == 0) return true;
  }
}

// Takes one answer, which must be one of HTTP/1.1.
inline said_answer take_answer(std::string_view& text) {
  said_answer a;
  const std::size_t end = text.find("\r\n\r\n");
  expect(text.starts_with(begin_of_head) && end != text.npos, "an answer begins with its head");
  a.head = text.substr(0, end + 2);
  a.status = static_cast<unsigned>(number(a.head.substr(9, 3), 10));
  expect(a.status >= 100 && a.status < 600 && a.head[12] == ' ', "a status has three digits");
  text.remove_prefix(end + 4);
  if (a.status == 100) return a;
  expect(field(a.head, "Date") == "Thu, 01 Jan 1970 00:00:00 GMT", "an answer tells the date");
  const std::string_view length = field(a.head, "Content-Length");
  const bool is_chunked = field(a.head, "Transfer-Encoding") == "chunked";
  expect(length.empty() || !is_chunked, "a body has one end");
  if (!field(a.head, "X-Broken").empty()) {
    text = {};
    return a;
  }
  const std::string_view before = text;
  if (a.status < 200 || a.status == 204 || a.status == 304 || !field(a.head, "X-Head").empty())
    return a;
  if (is_chunked) {
    a.is_whole = take_chunks(text, a.text);
    if (!a.is_whole) text = {};
  } else if (!length.empty()) {
    // No handler has seen the method of a request that was refused: it may be HEAD.
    const std::size_t size = number(length, 10);
    if (!text.empty() || a.status < 400) {
      a.is_whole = size <= text.size();
      text.remove_prefix(std::min(size, text.size()));
    }
  } else {
    expect(field(a.head, "Connection") == "close", "a body without an end is the last");
    text = {};
  }
  a.body = before.substr(0, before.size() - text.size());
  if (!is_chunked) a.text = a.body;
  return a;
}

inline bool is_last(const said_answer& a) {
  return field(a.head, "Connection") == "close";
}

// All answers but those of 100, which are counted. `cut`: the last one may be without the
// end of its head.
inline std::vector<said_answer> answers_of(std::string_view said, bool cut = false) {
  std::vector<said_answer> all;
  std::size_t continues = 0;
  while (!said.empty()) {
    expect(all.empty() || !is_last(all.back()), "nothing follows the last answer");
    if (cut && said.find("\r\n\r\n") == said.npos) {
      expect(said.starts_with(begin_of_head) || begin_of_head.starts_with(said),
             "a head is cut, not changed");
      break;
    }
    said_answer a = take_answer(said);
    if (a.status == 100) {
      ++continues;
      continue;
    }
    a.continues = std::exchange(continues, 0);
    all.push_back(std::move(a));
  }
  return all;
}

inline bool is_refusal(const said_answer& a) {
  return a.status >= 400 && is_last(a);
}

}  // namespace fuzz::http
