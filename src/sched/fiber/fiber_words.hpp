// How messages call a fiber: "fiber 4 (parser)", or without a name "fiber 4"; and the
// place where it was started.
#pragma once

#include "sched/fiber/fiber.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// The place where a fiber was started, for messages: "file:line", or if the line is 0,
// the text that stands in place of a file.
struct place_in_words {
  VIGIL_FOR_IO place_in_words(const char* file, unsigned line) noexcept;
  explicit place_in_words(const fiber& f) noexcept;

  char text[512];
};

// Async-signal-safe. In a list of arguments it lives as long as the call.
class fiber_words {
 public:
  // With a place: "fiber 4 (parser, started at main.cpp:12)".
  fiber_words(std::uint64_t id, const char* name, const char* place = nullptr) noexcept;

  explicit fiber_words(const fiber& f) noexcept : fiber_words(f.identity.id, f.identity.name) {}

  const char* text() const noexcept { return text_; }

 private:
  void put(const char* part) noexcept;

  std::size_t size_ = 0;
  char text_[32 + 4 * fiber_identity::name_room + 512];  // as long as a place_in_words
};

// With the place where the fiber was started.
class fiber_words_with_place : public fiber_words {
 public:
  explicit fiber_words_with_place(const fiber& f) noexcept;
};

}  // namespace VIGIL_DETAIL
