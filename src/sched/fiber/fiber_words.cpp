#include "sched/fiber/fiber_words.hpp"

#include "base/foreign_memory.hpp"
#include "sched/fiber/written_name.hpp"

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

place_in_words::place_in_words(const fiber& f) noexcept
    : place_in_words(f.identity.file, f.identity.line) {}

fiber_words::fiber_words(std::uint64_t id, const char* name, const char* place) noexcept {
  char digits[21] = {};
  std::size_t i = sizeof digits - 1;
  do {
    digits[--i] = static_cast<char>('0' + id % 10);
    id /= 10;
  } while (id != 0);
  put("fiber ");
  put(digits + i);
  const bool is_named = name[0] != '\0';
  if (is_named || place != nullptr) {
    put(" (");
    if (is_named) put(written_name(name).text());
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

fiber_words_with_place::fiber_words_with_place(const fiber& f) noexcept
    : fiber_words(f.identity.id, f.identity.name, place_in_words(f).text) {}

}  // namespace VIGIL_DETAIL
