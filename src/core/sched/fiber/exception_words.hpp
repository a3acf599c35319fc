// exception_words: the text of the exception in flight, for messages: what() of a
// std::exception.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Caller: a catch block. In a list of arguments it lives as long as the call.
class exception_words {
 public:
  exception_words() noexcept;

  const char* text() const noexcept { return text_; }

 private:
  char text_[512];
};

}  // namespace VIGIL_DETAIL
