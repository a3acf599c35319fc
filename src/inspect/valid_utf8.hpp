// valid_utf8: names come from the program, or from its clients, as any bytes; JSON and
// Protocol Buffers take UTF-8 alone.
#pragma once

#include <vigil/detail/config.hpp>

#include <string>
#include <string_view>

namespace VIGIL_DETAIL {

// The text with U+FFFD in place of each byte that belongs to no UTF-8 sequence.
std::string valid_utf8(std::string_view text);

}  // namespace VIGIL_DETAIL
