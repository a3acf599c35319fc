// The place in the caller's source where a fiber, a timer or a channel was made.
// std::source_location would do, but clang 14 has none with libstdc++ 12, and this is
// lighter.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_PUBLIC {

// site: the place where an object is made, as dumps show it: a default argument of what
// makes one, or named(). Throws nothing. Thread safety: a plain value. Lifetime: `file`
// is a literal. Cost: constants.
struct site {
  const char* file;
  unsigned line;
  unsigned name = 0;  // the number of a name: named()

  // As a default argument it names the line of the outermost call.
  static constexpr site current(const char* file = __builtin_FILE(),
                                unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

namespace detail {

// The place where an object was made, kept inside the object: by it dumps name what a
// fiber waits for.
struct birth {
  // One word for both: a lock has no room for more.
  static constexpr unsigned line_bits = 22;
  static constexpr unsigned most_lines = (1U << line_bits) - 1;

  constexpr birth(const site& from) noexcept
      : file(from.file),
        line_and_name((from.line < most_lines ? from.line : most_lines) | from.name << line_bits) {}

  constexpr unsigned line() const noexcept { return line_and_name & most_lines; }

  constexpr unsigned name() const noexcept { return line_and_name >> line_bits; }

  const char* file;
  unsigned line_and_name;
};

// A text that is there as long as the program: a literal, or a constant array.
struct constant_text {
  consteval constant_text(const char* s) noexcept : text(s) {}

  const char* text;
};

// Returns the number of a text in the table of names; 0 if that is full.
VIGIL_API unsigned number_of_name(const char* text) noexcept;

}  // namespace detail

// Names an object in dumps, beside the place where it is made:
//
//   auto jobs = vigil::make_channel<job>(16, vigil::named("jobs"));
//   vigil::mutex accounts{vigil::named("accounts")};
//
// For everything that takes a site, except fibers and timers, which have fiber_options
// and no name. A program may have 1000 names; more are left out. Thread safety: any
// thread. Lifetime: the name is a constant, and none is ever forgotten. Cost: a look into
// a table. A channel or a semaphore with a name remembers its last users, for dumps
// (vigil-inspect): some hundred instructions for each operation, and 2 KB.
[[nodiscard]] inline site named(detail::constant_text name,
                                const site& from = site::current()) noexcept {
  return {from.file, from.line, detail::number_of_name(name.text)};
}

}  // namespace VIGIL_PUBLIC
