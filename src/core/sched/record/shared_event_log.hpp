// shared_event_log: the events of the threads that are not a runtime's workers.
#pragma once

#include "core/base/spinlock.hpp"
#include "core/base/thread_annotations.hpp"
#include "core/sched/record/event_log.hpp"

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class shared_event_log {
 public:
  shared_event_log(std::size_t events, const clock_source& clock) : log_(events, clock) {}

  // Any thread that keeps the runtime alive meanwhile.
  void write(event_kind kind, std::uint64_t value = 0, std::uint16_t detail = 0) noexcept {
    if (!log_.is_on()) return;
    const lock_guard guard(lock_);
    log_.write(kind, value, detail);
  }

  void start(const fiber_identity& f, std::uint8_t role) noexcept {
    if (!log_.is_on()) return;
    const lock_guard guard(lock_);
    log_.start(f, role);
  }

  // Its readers need no lock.
  const event_log& log() const noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS { return log_; }

 private:
  spinlock lock_{lock_rank::events};
  event_log log_;  // written under the lock
};

}  // namespace VIGIL_DETAIL
