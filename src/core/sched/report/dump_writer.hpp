// dump_writer: the text of dumps and reports, without the heap and without stdio.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace VIGIL_DETAIL {

// Collects text and writes it out in pieces: to a descriptor, which is async-signal-safe,
// or to a stream or a string, which is not.
class dump_writer {
 public:
  explicit dump_writer(int descriptor) noexcept : descriptor_(descriptor) {}

  explicit dump_writer(std::FILE* stream) noexcept : stream_(stream) {}

  // Text for which there is no memory is dropped.
  explicit dump_writer(std::string& into) noexcept : string_(&into) {}

  VIGIL_FOR_IO dump_writer& text(const char* s) noexcept;
  dump_writer& text(const char* s, std::size_t limit) noexcept;
  VIGIL_FOR_IO dump_writer& name(const char* s) noexcept;  // a fiber's name: escaped, in one line
  VIGIL_FOR_IO dump_writer& file(const char* s) noexcept;  // a file's: the same, of any length
  VIGIL_FOR_IO dump_writer& number(std::uint64_t n, int base = 10) noexcept;
  VIGIL_FOR_IO dump_writer& seconds(std::int64_t nanoseconds) noexcept;  // "1.234 s"
  VIGIL_FOR_IO void flush() noexcept;

 private:
  void put(char c) noexcept;
  bool has_room_soon() noexcept;

  int descriptor_ = -1;
  bool has_no_reader_ = false;
  std::FILE* stream_ = nullptr;
  std::string* string_ = nullptr;
  std::size_t used_ = 0;
  char buffer_[1024];
};

}  // namespace VIGIL_DETAIL
