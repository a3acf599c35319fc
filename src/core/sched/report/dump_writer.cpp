#include "core/sched/report/dump_writer.hpp"

#include "core/sched/fiber/written_name.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>

#include <poll.h>
#include <unistd.h>

namespace VIGIL_DETAIL {

dump_writer& dump_writer::text(const char* s) noexcept {
  while (*s != '\0')
    put(*s++);
  return *this;
}

dump_writer& dump_writer::text(const char* s, std::size_t limit) noexcept {
  for (std::size_t i = 0; i < limit && s[i] != '\0'; ++i)
    put(s[i]);
  return *this;
}

dump_writer& dump_writer::number(std::uint64_t n, int base) noexcept {
  char digits[20];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof digits, n, base);
  return text(digits, static_cast<std::size_t>(end.ptr - digits));
}

dump_writer& dump_writer::seconds(std::int64_t nanoseconds) noexcept {
  auto n = static_cast<std::uint64_t>(nanoseconds);
  if (nanoseconds < 0) {
    put('-');
    n = 0 - n;
  }
  const std::uint64_t millis = n / 1'000'000;
  number(millis / 1000);
  put('.');
  put(static_cast<char>('0' + millis / 100 % 10));
  put(static_cast<char>('0' + millis / 10 % 10));
  put(static_cast<char>('0' + millis % 10));
  return text(" s");
}

void dump_writer::put(char c) noexcept {
  if (used_ == sizeof buffer_) flush();
  buffer_[used_++] = c;
}

void dump_writer::flush() noexcept {
  const char* p = buffer_;
  if (string_ != nullptr) {
    try {
      string_->append(p, used_);
    } catch (const std::bad_alloc&) {
    }
    used_ = 0;
    return;
  }
  if (stream_ != nullptr) {
    std::fwrite(p, 1, used_, stream_);
    used_ = 0;
    return;
  }
  while (used_ > 0) {
    const ssize_t n = ::write(descriptor_, p, used_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN && has_room_soon()) continue;
    if (n <= 0) break;
    p += n;
    used_ -= static_cast<std::size_t>(n);
  }
  used_ = 0;
}

// For a descriptor that does not block: waits a second for its reader, but once only if
// that one does not read.
bool dump_writer::has_room_soon() noexcept {
  if (has_no_reader_) return false;
  pollfd one{descriptor_, POLLOUT, 0};
  has_no_reader_ = ::poll(&one, 1, 1000) <= 0;
  return !has_no_reader_;
}

dump_writer& dump_writer::name(const char* s) noexcept {
  return text(written_name(s).text());
}

dump_writer& dump_writer::file(const char* s) noexcept {
  char part[fiber_identity::name_room];
  while (*s != '\0') {
    std::size_t n = ::strnlen(s, sizeof part - 1);
    // A character of several bytes that goes on behind this part belongs to the next one.
    for (int i = 0; i < 3 && (static_cast<unsigned>(s[n]) & 0xc0) == 0x80; ++i)
      --n;
    std::memcpy(part, s, n);
    part[n] = '\0';
    name(part);
    s += n;
  }
  return *this;
}

}  // namespace VIGIL_DETAIL
