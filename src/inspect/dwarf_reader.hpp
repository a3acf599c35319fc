// dwarf_reader: reads the encodings of DWARF, of which call frame information is made.
// Past the end everything is 0, and failed() says so.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace VIGIL_DETAIL {

class dwarf_reader {
 public:
  dwarf_reader(const std::uint8_t* begin, const std::uint8_t* end) noexcept
      : at_(begin), end_(end) {}

  bool failed() const noexcept { return failed_; }

  bool at_end() const noexcept { return failed_ || at_ >= end_; }

  const std::uint8_t* at() const noexcept { return at_; }

  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  template <class T>
  T fixed() noexcept {
    T value{};
    if (const std::uint8_t* const p = take(sizeof value)) std::memcpy(&value, p, sizeof value);
    return value;
  }

  std::uint64_t uleb() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = fixed<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }

  std::int64_t sleb() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0;;) {
      const auto byte = fixed<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      shift += 7;
      if ((byte & 0x80) != 0) continue;
      if (shift < 64 && (byte & 0x40) != 0) value |= ~std::uint64_t{0} << shift;
      return static_cast<std::int64_t>(value);
    }
  }

  // A block of that many bytes, which is skipped.
  dwarf_reader block(std::uint64_t size) noexcept {
    const std::uint8_t* const p = take(size);
    return p != nullptr ? dwarf_reader(p, p + size) : dwarf_reader(end_, end_);
  }

  const char* text() noexcept {
    const auto* const begin = reinterpret_cast<const char*>(at_);
    while (fixed<std::uint8_t>() != 0) {
    }
    return failed_ ? "" : begin;
  }

  // The size of a pointer in this encoding (DW_EH_PE_*); 0 if it is not supported.
  static std::size_t size_of(std::uint8_t encoding) noexcept {
    switch (encoding & 0x07) {
      case 0:
        return sizeof(void*);
      case 2:
        return 2;
      case 3:
        return 4;
      case 4:
        return 8;
      default:
        return 0;
    }
  }

 private:
  const std::uint8_t* take(std::uint64_t size) noexcept {
    if (failed_ || static_cast<std::uint64_t>(end_ - at_) < size) {
      failed_ = true;
      at_ = end_;
      return nullptr;
    }
    return std::exchange(at_, at_ + size);
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool failed_ = false;
};

}  // namespace VIGIL_DETAIL
