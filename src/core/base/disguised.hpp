// disguised: the address of something that a report looks at, in a form that is no
// pointer. The search for stuck fibers takes each word that looks like one for one, also
// in memory that a report has freed (inspect/stuck_fibers.hpp).
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

template <class T>
class disguised {
 public:
  disguised() noexcept = default;

  disguised(T* p) noexcept  // NOLINT(google-explicit-constructor): it stands for the address
      : bits_(~reinterpret_cast<std::uintptr_t>(p)) {}

  T* get() const noexcept { return reinterpret_cast<T*>(~bits_); }

  operator T*() const noexcept {  // NOLINT(google-explicit-constructor): as above
    return get();
  }

 private:
  std::uintptr_t bits_ = ~std::uintptr_t{0};
};

}  // namespace VIGIL_DETAIL
