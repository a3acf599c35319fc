// park_check: a look at each fiber that is about to give up its worker. vigil-lock-check
// installs one; the library itself needs none.
#pragma once

#include "core/base/atomic.hpp"
#include "core/machine/sanitizer.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/wait/wait_reason.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>

#if VIGIL_TSAN
// Reports the locks that the caller holds. clang's runtime has it since version 18.
extern "C" [[gnu::weak]] void __tsan_check_no_mutexes_held();
#endif

namespace VIGIL_DETAIL {

// Why a fiber is looked at. `was_served`: by a call that may wait, but did not; the next
// one may have to.
enum class leaving : std::uint8_t { waits, yields, was_served };

// `why`: the reason of the wait, if it is one.
using park_check = void (*)(const fiber& self, leaving how, wait_reason why) noexcept;

// nullptr: none is installed. One that is stays for ever.
VIGIL_FOR_IO extern atomic<park_check> installed_park_check;

// The slow half of about_to_leave().
void leave_with_care(fiber& self, wait_reason why) noexcept;

// Called by a fiber that is about to give up its worker.
inline void about_to_leave(fiber& self, wait_reason why) noexcept {
#if VIGIL_TSAN
  if (__tsan_check_no_mutexes_held != nullptr) __tsan_check_no_mutexes_held();
#endif
  // Looked at together: one branch.
  // ordering: a setting.
  const bool is_checked = installed_park_check.load(order::relaxed) != nullptr;
  if (is_checked | (self.deferred != nullptr)) [[unlikely]]
    leave_with_care(self, why);
}

}  // namespace VIGIL_DETAIL
