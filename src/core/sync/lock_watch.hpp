// lock_watch: changes why each lock comes to the library.
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

// Calls change(reasons), which returns the new ones: maybe more than once.
template <class Change>
void change_lock_watch(Change change) noexcept {
  // ordering: a setting.
  std::uint32_t seen = locks_are_watched.load(order::relaxed);
  std::uint32_t next = 0;
  do {
    next = change(seen & ~lock_watch::any);
    if (next != 0) next |= lock_watch::any;
  } while (!locks_are_watched.compare_exchange_weak(seen, next));
}

inline void watch_locks(std::uint32_t reason) noexcept {
  detail::change_lock_watch([reason](std::uint32_t reasons) { return reasons | reason; });
}

}  // namespace VIGIL_DETAIL
