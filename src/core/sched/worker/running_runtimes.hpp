// The table of the runtimes that run now. Signal handlers and dumps read it without a
// lock; a run enters it when it begins and leaves it when it ends, under process_lock.
//
// A slot is emptied before its scheduler goes, and process_guard waits until
// handlers_inside is 0: so a reader that has counted itself may use what it finds.
// Blocks of slots are added, and never go.
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace VIGIL_DETAIL {

class scheduler;

struct runtime_slot {
  atomic<scheduler*> running{nullptr};
  atomic<std::uint64_t> wants{0};  // signals, a bit for each
};

struct slot_block {
  runtime_slot slots[64];
  atomic<slot_block*> next{nullptr};
};

VIGIL_FOR_IO extern slot_block first_slots;
VIGIL_FOR_IO extern atomic<int> handlers_inside;

// Guards all that a run changes in its process: taken when a run begins or ends, when
// signals are added, and by a thread that forks.
extern std::mutex process_lock;
// Written under process_lock. A dump reads it by itself: whether it has to tell runtimes
// apart; nothing hangs on it.
VIGIL_FOR_IO extern atomic<std::size_t> runtimes_running;

// Whether the process has ever made a runtime for the program.
extern atomic<bool> runtime_was_made;

// For a handler's scope: the handler is counted, and errno is kept.
class handler_scope {
 public:
  handler_scope() noexcept { handlers_inside.fetch_add(1); }

  ~handler_scope() {
    handlers_inside.fetch_sub(1);
    errno = errno_;
  }

  handler_scope(const handler_scope&) = delete;
  handler_scope& operator=(const handler_scope&) = delete;

 private:
  int errno_ = errno;
};

// Returns the first slot for which f says true, or null. Async-signal-safe if f is.
template <class F>
runtime_slot* find_slot(F&& f) noexcept {
  for (slot_block* b = &first_slots; b != nullptr; b = b->next.load()) {
    for (runtime_slot& slot : b->slots) {
      if (f(slot)) return &slot;
    }
  }
  return nullptr;
}

// Calls f with each running scheduler and its slot. Async-signal-safe if f is.
template <class F>
void for_each_running(F&& f) noexcept {
  find_slot([&](runtime_slot& slot) {
    if (scheduler* const s = slot.running.load()) f(*s, slot);
    return false;
  });
}

// The slot of this scheduler, or null if it does not run. Async-signal-safe.
runtime_slot* slot_with(const scheduler* s) noexcept;

// An empty slot. Caller: holds process_lock.
runtime_slot& free_slot();

}  // namespace VIGIL_DETAIL
