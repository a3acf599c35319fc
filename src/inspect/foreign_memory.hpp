// foreign_memory: reads memory that may be gone. The kernel copies it, so what is not
// mapped is an error and no fault. Async-signal-safe.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

namespace vigil::inline VIGIL_ABI::detail {

// False if a byte of it cannot be read, or where a sandbox forbids process_vm_readv.
bool read_memory(const void* from, void* to, std::size_t size) noexcept;

// Reads memory of a file that the program has loaded, such as its tables: it may be
// closed meanwhile. Where a sandbox forbids process_vm_readv it is read as it is.
bool read_loaded(const void* from, void* to, std::size_t size) noexcept;

// The text at `from`, cut to fit. False if it cannot be read.
bool read_text(const char* from, char* to, std::size_t room) noexcept;

// Room for an object's bytes, which were an object elsewhere.
template <class T>
class copied_bytes {
 public:
  bool read(const void* from) noexcept { return read_memory(from, bytes_, sizeof bytes_); }

  const T& as_object() const noexcept { return *reinterpret_cast<const T*>(bytes_); }

 private:
  alignas(T) std::byte bytes_[sizeof(T)];
};

}  // namespace vigil::inline VIGIL_ABI::detail
