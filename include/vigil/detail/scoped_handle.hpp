// scoped_handle: stops what a handle names at the end of a scope.
#pragma once

#include <vigil/detail/callable.hpp>
#include <vigil/detail/config.hpp>

#include <utility>

namespace VIGIL_DETAIL {

class timer_record;

// Calls stop_and_wait as the end of a scope may wait: no stop of the fiber ends it.
// Inside the callback of `record`, which would wait for itself, it calls stop.
// Waits: throws nothing.
VIGIL_API void stop_for_scope(const timer_record* record,
                              call_ref stop,
                              call_ref stop_and_wait) noexcept;

// Owns a Handle of a callback: at the end of the scope the callback is stopped, and a
// running one waited for (unless the scope ends inside it), so that the callback may
// refer to variables of the scope. An assignment first does the same with the old one. On
// a plain thread it blocks the thread.
template <class Handle>
class [[nodiscard]] scoped_handle {
 public:
  scoped_handle() noexcept = default;

  // NOLINTNEXTLINE(google-explicit-constructor)
  [[nodiscard]] scoped_handle(Handle h) noexcept : handle_(std::move(h)) {}

  scoped_handle(scoped_handle&& other) noexcept : handle_(std::exchange(other.handle_, Handle())) {}

  scoped_handle& operator=(scoped_handle&& other) noexcept {
    if (this != &other) {
      end();
      handle_ = std::exchange(other.handle_, Handle());
    }
    return *this;
  }

  ~scoped_handle() { end(); }

  Handle* operator->() noexcept { return &handle_; }

  Handle& operator*() noexcept { return handle_; }

  const Handle& get() const noexcept { return handle_; }

  // Gives up the handle without stopping anything.
  Handle release() noexcept { return std::exchange(handle_, Handle()); }

 private:
  void end() noexcept {
    auto stop = [this] { handle_.stop(); };
    auto stop_and_wait = [this] { handle_.stop_and_wait(); };
    stop_for_scope(handle_.record(), stop, stop_and_wait);
  }

  Handle handle_;
};

}  // namespace VIGIL_DETAIL
