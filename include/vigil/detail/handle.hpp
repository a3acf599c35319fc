// handle: a counted reference, for every class of the library that is counted.
#pragma once

#include <vigil/detail/config.hpp>

#include <utility>

namespace VIGIL_DETAIL {

// retain(T*) and release(T*) count; they are found by their argument, so T may be
// incomplete. A moved-from handle is empty.
template <class T>
class handle {
 public:
  handle() noexcept = default;

  // Takes over a reference.
  explicit handle(T* owned) noexcept : object_(owned) {}

  handle(const handle& other) noexcept : object_(other.object_) {
    if (object_ != nullptr) retain(object_);
  }

  handle(handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}

  handle& operator=(handle other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  ~handle() {
    if (object_ != nullptr) release(object_);
  }

  // A new reference; empty for nullptr.
  static handle to(T* object) noexcept {
    if (object != nullptr) retain(object);
    return handle(object);
  }

  T* get() const noexcept { return object_; }

  explicit operator bool() const noexcept { return object_ != nullptr; }

  friend bool operator==(const handle&, const handle&) = default;

 private:
  T* object_ = nullptr;
};

}  // namespace VIGIL_DETAIL
