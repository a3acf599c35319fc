// The text that debug::dump writes.
#pragma once

#include <vigil/debug.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace vigil::testing_support {

inline std::string dumped() {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const f = ::open_memstream(&text, &size);
  debug::dump(f);
  std::fclose(f);
  std::string result(text, size);
  std::free(text);
  return result;
}

}  // namespace vigil::testing_support
