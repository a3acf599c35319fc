// one_operation: memory for an operation of Asio's of which there is one at a time. A
// second one, or a larger one, gets memory from the heap.
#pragma once

#include <vigil/detail/config.hpp>

#include <atomic>
#include <cstddef>
#include <new>

namespace VIGIL_IO_DETAIL {

template <std::size_t Room>
class one_operation_of {
 public:
  one_operation_of() noexcept {}  // not defaulted: `{}` would clear the room

  one_operation_of(const one_operation_of&) = delete;
  one_operation_of& operator=(const one_operation_of&) = delete;

  // Throws std::bad_alloc.
  void* allocate(std::size_t bytes) {
    // Pairs with the release in deallocate().
    if (bytes > Room || used_.exchange(true, std::memory_order_acquire)) {
      return ::operator new(bytes);
    }
    return bytes_;
  }

  void deallocate(void* p) noexcept {
    if (p != bytes_) {
      ::operator delete(p);
      return;
    }
    // Pairs with the acquire in allocate(), perhaps on another thread.
    used_.store(false, std::memory_order_release);
  }

 private:
  alignas(std::max_align_t) std::byte bytes_[Room];
  std::atomic<bool> used_{false};
};

using one_operation = one_operation_of<240>;

template <class T, std::size_t Room = 240>
class one_operation_allocator {
 public:
  using value_type = T;

  template <class U>
  struct rebind {
    using other = one_operation_allocator<U, Room>;
  };

  explicit one_operation_allocator(one_operation_of<Room>& memory) noexcept : memory_(&memory) {}

  template <class U>
  one_operation_allocator(const one_operation_allocator<U, Room>& other) noexcept
      : memory_(other.memory_) {}

  T* allocate(std::size_t n) { return static_cast<T*>(memory_->allocate(n * sizeof(T))); }

  void deallocate(T* p, std::size_t) noexcept { memory_->deallocate(p); }

  template <class U>
  friend bool operator==(const one_operation_allocator& a,
                         const one_operation_allocator<U, Room>& b) noexcept {
    return a.memory_ == b.memory_;
  }

  one_operation_of<Room>* memory_;
};

}  // namespace VIGIL_IO_DETAIL
