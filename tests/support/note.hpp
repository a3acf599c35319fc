// NOTE(parts...): words that a failed check shows besides, as long as the scope lasts.
// It is doctest's INFO for code that may be on another thread after a wait; the notes of
// all fibers are shown.
#pragma once

#include <sstream>
#include <string>

namespace vigil::testing_support {

class check_note {
 public:
  template <class... Parts>
  explicit check_note(const Parts&... parts) {
    std::ostringstream all;
    (all << ... << parts);
    text_ = all.str();
    add();
  }

  ~check_note();
  check_note(const check_note&) = delete;
  check_note& operator=(const check_note&) = delete;

  static void show_all();

 private:
  void add();

  std::string text_;
};

}  // namespace vigil::testing_support

#define VIGIL_NOTE_NAME(line) note_of_line_##line
#define VIGIL_NOTE_AT(line) VIGIL_NOTE_NAME(line)
#define NOTE(...)                                                      \
  const ::vigil::testing_support::check_note VIGIL_NOTE_AT(__LINE__) { \
    __VA_ARGS__                                                        \
  }
