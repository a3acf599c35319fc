// spare_rooms: rooms for entries that no list uses now. A few are kept, for lists by
// duration that are empty at times.
#pragma once

#include "core/base/spinlock.hpp"
#include "core/idle_timeouts/timeout_order.hpp"

#include <utility>

namespace VIGIL_DETAIL {

class spare_rooms {
 public:
  using room = timeout_order::room;

  // Throws std::bad_alloc.
  room& take() {
    {
      const lock_guard guard(lock_);
      if (room* const r = first_) {
        first_ = r->next;
        --many_;
        return *r;
      }
    }
    return *new room;
  }

  void give(room* r) noexcept {
    {
      const lock_guard guard(lock_);
      if (many_ < most) {
        r->next = std::exchange(first_, r);
        ++many_;
        return;
      }
    }
    delete r;
  }

 private:
  static constexpr unsigned most = 32;

  spinlock lock_{lock_rank::timeout_rooms};
  room* first_ VIGIL_GUARDED_BY(lock_) = nullptr;
  unsigned many_ VIGIL_GUARDED_BY(lock_) = 0;
};

inline spare_rooms& rooms() {
  static auto& made = *new spare_rooms;
  return made;
}

}  // namespace VIGIL_DETAIL
