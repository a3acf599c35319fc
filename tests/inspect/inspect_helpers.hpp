// The parts that the tests of vigil-inspect have in common.
#pragma once

#include <vigil/inspect.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

// Not in the library's namespace, whose frames are folded.
namespace stacks {

// Calls itself so many times, and then at_bottom().
[[gnu::noinline]] inline void down(int depth, const std::function<void()>& at_bottom) {
  if (depth == 0) {
    at_bottom();
  } else {
    down(depth - 1, at_bottom);
  }
  asm volatile("" ::: "memory");  // no tail call
}

}  // namespace stacks

namespace vigil::testing_support {

using stacks::down;

template <class Write>
std::string written(Write write) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const f = ::open_memstream(&text, &size);
  write(f);
  std::fclose(f);
  std::string result(text, size);
  std::free(text);
  return result;
}

inline std::string inspected(const inspect::dump_options& options = {}) {
  return written([&](std::FILE* f) { inspect::dump(f, options); });
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    all.push_back(line);
  return all;
}

// The line of the fiber with this name; empty if there is none.
inline std::string fiber_line(const std::string& text, std::string_view name) {
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("fiber ") && has(line, "(" + std::string(name) + ") [")) return line;
  }
  return "";
}

// Cuts off what follows the name of the function: its line, if the build has lines, and
// the place in brackets or "[inlined]".
inline std::string without_place(std::string frame) {
  const auto cut = [&](std::size_t at) { frame.resize(std::min(at, frame.size())); };
  cut(frame.ends_with(" [inlined]") ? frame.rfind(" [") : frame.rfind(" ("));
  const std::size_t digits = frame.find_last_not_of("0123456789");
  if (digits + 1 < frame.size() && frame[digits] == ':') cut(frame.rfind(' '));
  return frame;
}

// The functions on the stack of the fiber with this name, the innermost first.
inline std::vector<std::string> functions_below(const std::string& text, std::string_view name) {
  constexpr std::string_view at = "    at ";
  std::vector<std::string> all;
  bool is_group = false;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("fiber ")) {
      if (!all.empty()) break;
      is_group = is_group || has(line, "(" + std::string(name) + ") [");
    } else if (is_group && line.starts_with(at)) {
      all.push_back(without_place(line.substr(at.size())));
    } else if (is_group && !line.starts_with("    ")) {
      if (!all.empty()) break;
      is_group = false;
    }
  }
  return all;
}

inline std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++n;
  return n;
}

}  // namespace vigil::testing_support
