// json_text: the texts of a program as JSON.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <string_view>

#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

namespace VIGIL_DETAIL {

// The text in UTF-8, with U+FFFD in place of bytes that are none.
boost::json::string utf8(std::string_view s);

// {"file": …, "line": …}; without a line if that is 0.
boost::json::object site_of(const char* file, std::uint32_t line);

}  // namespace VIGIL_DETAIL
