// fiber_identity: a fiber's name, number and origin.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// How messages, dumps and the recorder name a fiber. Written before it starts. Later the
// fiber may change its name, and a runner writes where the callback's timer was made; the
// dump reads both racing.
struct fiber_identity {
  static constexpr std::size_t name_room = 32;

  fiber_identity() noexcept : file(""), line(0), name{} {}

  // The caller writes the name.
  explicit fiber_identity(const site& from) noexcept : file(from.file), line(from.line) {}

  std::uint64_t id = 0;
  std::uint64_t parent = 0;  // the fiber that started it; 0: none did
  const char* file;          // where it was started, or made
  std::uint32_t line;
  char name[name_room];
};

}  // namespace VIGIL_DETAIL
