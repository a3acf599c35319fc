// foreign_memory: reads memory that may be gone. The kernel copies it, so what is not
// mapped is an error and no fault. Async-signal-safe.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// False if a byte of it cannot be read, or where a sandbox forbids process_vm_readv.
VIGIL_FOR_IO bool read_memory(const void* from, void* to, std::size_t size) noexcept;

// Reads memory of a file that the program has loaded, such as its tables: it may be
// closed meanwhile. Where a sandbox forbids process_vm_readv it is read as it is.
VIGIL_FOR_IO bool read_loaded(const void* from, void* to, std::size_t size) noexcept;

// The text at `from`, cut to fit; read as above. False if it is not there.
VIGIL_FOR_IO bool read_text(const char* from, char* to, std::size_t room) noexcept;

// A copy of a constant of the program, such as the name of a source file; "?" if the
// library that it belongs to has been unloaded.
class copied_text {
 public:
  explicit copied_text(const char* from) noexcept {
    if (read_text(from, text_, sizeof text_) && text_[0] != '\0') return;
    text_[0] = '?';
    text_[1] = '\0';
  }

  const char* get() const noexcept { return text_; }

 private:
  char text_[512];
};

// Room for an object's bytes, which were an object elsewhere.
template <class T>
class copied_bytes {
 public:
  bool read(const void* from) noexcept { return read_memory(from, bytes_, sizeof bytes_); }

  const T& as_object() const noexcept { return *reinterpret_cast<const T*>(bytes_); }

 private:
  alignas(T) std::byte bytes_[sizeof(T)];
};

}  // namespace VIGIL_DETAIL
