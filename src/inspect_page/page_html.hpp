// page_html: the page that a browser gets: one document, with its style and its script.
#pragma once

#include <vigil/detail/config.hpp>

#include <string>
#include <string_view>

namespace VIGIL_DETAIL {

// The parts, as constants: page_style.cpp, page_script.cpp and page_html.cpp.
extern const std::string_view page_style;
extern const std::string_view page_script;

// The document. Its one style and its one script carry the nonce, without which the
// browser ignores them.
std::string page_document(std::string_view nonce);

// The field Content-Security-Policy that goes with it, with its line end.
std::string page_policy(std::string_view nonce);

}  // namespace VIGIL_DETAIL
