#include "inspect/json_text.hpp"

#include "inspect/valid_utf8.hpp"

namespace VIGIL_DETAIL {

boost::json::string utf8(std::string_view s) {
  return boost::json::string(valid_utf8(s));
}

boost::json::object site_of(const char* file, std::uint32_t line) {
  boost::json::object o{{"file", utf8(file)}};
  if (line != 0) o["line"] = line;
  return o;
}

}  // namespace VIGIL_DETAIL
