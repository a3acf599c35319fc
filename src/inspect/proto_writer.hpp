// proto_writer: writes a message in the wire format of Protocol Buffers
// (protobuf.dev/programming-guides/encoding), field by field.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace VIGIL_DETAIL {

class proto_writer {
 public:
  proto_writer& number(unsigned field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }

  proto_writer& fixed64(unsigned field, std::uint64_t value) {
    varint(field << 3 | 1);
    for (int i = 0; i < 8; ++i)
      bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }

  // Text, or a whole message.
  proto_writer& text(unsigned field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_.append(value);
    return *this;
  }

  proto_writer& message(unsigned field, const proto_writer& m) { return text(field, m.bytes_); }

  std::string take() && { return std::move(bytes_); }

  void clear() noexcept { bytes_.clear(); }

 private:
  void varint(std::uint64_t v) {
    for (; v >= 0x80; v >>= 7)
      bytes_.push_back(static_cast<char>(v | 0x80));
    bytes_.push_back(static_cast<char>(v));
  }

  std::string bytes_;
};

}  // namespace VIGIL_DETAIL
