// How messages call a fiber: "fiber 4 (parser)", or without a name "fiber 4"; and the
// place where it was started.
#pragma once

#include "core/sched/record/fiber_identity.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// The place where a fiber was started, for messages: "file:line", or if the line is 0,
// the text that stands in place of a file.
struct place_in_words {
  VIGIL_FOR_IO place_in_words(const char* file, unsigned line) noexcept;

  explicit place_in_words(const fiber_identity& f) noexcept : place_in_words(f.file, f.line) {}

  char text[512];
};

// Async-signal-safe. In a list of arguments it lives as long as the call.
class fiber_words {
 public:
  // With a place: "fiber 4 (parser, started at main.cpp:12)".
  explicit fiber_words(const fiber_identity& f, const char* place = nullptr) noexcept;

  const char* text() const noexcept { return text_; }

 private:
  void put(const char* part) noexcept;

  std::size_t size_ = 0;
  char text_[32 + 4 * fiber_identity::name_room + 512];  // as long as a place_in_words
};

}  // namespace VIGIL_DETAIL
