// The bytes of a fuzz target, read as a program: next byte, number or choice.
//
// Every sequence of bytes is a valid input. After the last byte only zeros come: a target
// ends its loop by `while (!in.ended())`, and a zero should be the cheapest choice. Two
// reads are two statements: as arguments of one call they come in an order that each
// compiler chooses, and a corpus would mean something else to another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string_view>

namespace fuzz {

class input {
 public:
  input(const std::uint8_t* data, std::size_t size) noexcept : left_(data, size) {}

  [[nodiscard]] bool ended() const noexcept { return left_.empty(); }

  [[nodiscard]] std::uint8_t byte() noexcept {
    if (left_.empty()) return 0;
    const std::uint8_t first = left_.front();
    left_ = left_.subspan(1);
    return first;
  }

  [[nodiscard]] bool flag() noexcept { return byte() % 2 != 0; }

  // As many bytes as Int has, the lowest first.
  template <class Int>
  [[nodiscard]] Int number() noexcept {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < sizeof(Int); ++i)
      bits |= std::uint64_t{byte()} << (8 * i);
    return static_cast<Int>(bits);
  }

  // A number below `bound`, which is not 0. Takes one byte if that suffices, else four.
  [[nodiscard]] std::size_t below(std::size_t bound) noexcept {
    return (bound <= 256 ? byte() : number<std::uint32_t>()) % bound;
  }

  template <class T>
  [[nodiscard]] T one_of(std::initializer_list<T> choices) noexcept {
    return choices.begin()[below(choices.size())];
  }

  // Up to `most` bytes, as they are.
  [[nodiscard]] std::string_view text(std::size_t most) noexcept {
    const std::span<const std::uint8_t> taken = left_.first(std::min(most, left_.size()));
    left_ = left_.subspan(taken.size());
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  // All bytes that are left.
  [[nodiscard]] std::string_view rest() noexcept { return text(left_.size()); }

 private:
  std::span<const std::uint8_t> left_;
};

// Ends the process if the library and the model differ: `what` says in which.
inline void expect(bool holds,
                   const char* what,
                   const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  std::abort();
}

}  // namespace fuzz
