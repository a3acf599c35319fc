// lock_check: reports the fibers that hold a lock of the operating system while they give
// up their worker. docs/guide/stuck.md.
//
// The danger. Such a lock belongs to a thread. A fiber that waits with one may go on on
// another thread, which must not unlock it; and a fiber that wants the lock meanwhile
// blocks its worker, which may be the one that the holder needs.
//
// The pthread functions of this library (pthread_calls.cpp) stand before the C library's
// and note which fiber has locked what, and where. Locks that are taken on a worker's own
// stack (by handlers of Asio) or on other threads are not noted: no fiber waits there.
#pragma once

#include "lock_check/held_locks.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Called by a fiber, or by anything else, right after it has taken a lock, and right
// before it unlocks. `return_address` is that of the pthread function.
void note_locked(const void* lock, lock_kind kind, void* return_address) noexcept;

// Does nothing, in the file of the pthread functions: a linker that takes the one from a
// static library takes them all.
void put_in_place() noexcept;

// The lock of a fiber while the pthread function that releases it is under way.
class released_lock {
 public:
  released_lock(const void* lock, lock_kind kind) noexcept;

  // It has been taken again, or was not released.
  void put_back() noexcept;

 private:
  bool was_noted_ = false;
  held_lock noted_;
};

}  // namespace VIGIL_DETAIL
