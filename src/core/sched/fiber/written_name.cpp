#include "core/sched/fiber/written_name.hpp"

namespace VIGIL_DETAIL {
namespace {

// Returns how many bytes form the character here, if a terminal shows it; 0 for a
// control character, and for bytes that are not UTF-8.
std::size_t shown_bytes(const char* s) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  if (first == 0xc2 && at(1) < 0xa0) return 0;  // the control characters beyond ASCII
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;  // the final zero, too
  }
  return length;
}

}  // namespace

written_name::written_name(const char* name) noexcept {
  while (*name != '\0') {
    const std::size_t shown = shown_bytes(name);
    if (*name == '\\' || shown == 0) {
      escape(*name++);
    } else {
      for (std::size_t i = 0; i < shown; ++i)
        text_[size_++] = *name++;
    }
  }
  text_[size_] = '\0';
}

void written_name::escape(char c) noexcept {
  constexpr char plain[] = "\\ntr";
  constexpr char special[] = "\\\n\t\r";
  text_[size_++] = '\\';
  for (std::size_t i = 0; i < sizeof plain - 1; ++i) {
    if (c == special[i]) {
      text_[size_++] = plain[i];
      return;
    }
  }
  constexpr char digits[] = "0123456789abcdef";
  text_[size_++] = 'x';
  text_[size_++] = digits[static_cast<unsigned char>(c) >> 4];
  text_[size_++] = digits[static_cast<unsigned char>(c) & 0xf];
}

}  // namespace VIGIL_DETAIL
