#include "core/sched/fiber/exception_words.hpp"

#include <cstdio>
#include <exception>

namespace VIGIL_DETAIL {

exception_words::exception_words() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    std::snprintf(text_, sizeof text_, "%s", e.what());
  } catch (...) {
    std::snprintf(text_, sizeof text_, "it is no std::exception");
  }
}

}  // namespace VIGIL_DETAIL
