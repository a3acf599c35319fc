#include "message.hpp"

#include <algorithm>

#include <boost/beast/core/string.hpp>

namespace web {

std::string_view request::header(std::string_view name) const {
  for (const field& f : fields_) {
    if (boost::beast::iequals(text_of(f.name), name)) return text_of(f.value);
  }
  return {};
}

std::size_t request::count(std::string_view name) const {
  const auto n = std::count_if(fields_.begin(), fields_.end(), [&](const field& f) {
    return boost::beast::iequals(text_of(f.name), name);
  });
  return static_cast<std::size_t>(n);
}

request::part request::keep(std::string_view text) {
  const part kept{text_.size(), text.size()};
  text_.append(text);
  return kept;
}

// Small memory is kept for the next request, large memory is not.
void request::clear() {
  constexpr std::size_t small = 4096;
  text_.clear();
  fields_.clear();
  body_.clear();
  version_ = 11;
  if (body_.capacity() > small) body_.shrink_to_fit();
  if (text_.capacity() > small) text_.shrink_to_fit();
}

}  // namespace web
