#include "core/sched/fiber/fiber_words.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/sched/fiber/written_name.hpp"

#include <charconv>
#include <cstdio>

namespace VIGIL_DETAIL {

place_in_words::place_in_words(const char* file, unsigned line) noexcept {
  const copied_text name(file);
  if (line == 0) {
    std::snprintf(text, sizeof text, "%s", name.get());
  } else {
    std::snprintf(text, sizeof text, "%s:%u", name.get(), line);
  }
}

fiber_words::fiber_words(const fiber_identity& f, const char* place) noexcept {
  char digits[21] = {};
  std::to_chars(digits, digits + sizeof digits, f.id);
  put("fiber ");
  put(digits);
  const bool is_named = f.name[0] != '\0';
  if (is_named || place != nullptr) {
    put(" (");
    if (is_named) put(written_name(f.name).text());
    if (is_named && place != nullptr) put(", ");
    if (place != nullptr) {
      put("started at ");
      put(place);
    }
    put(")");
  }
  text_[size_] = '\0';
}

void fiber_words::put(const char* part) noexcept {
  while (*part != '\0' && size_ + 1 < sizeof text_)
    text_[size_++] = *part++;
}

}  // namespace VIGIL_DETAIL
