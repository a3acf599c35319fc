// note: lets one thread sleep until another says "go".
//
//             clear()            sleep_until()            wake()
//   set ─────────────▶ empty ─────────────────▶ sleeping ─────────▶ set
//                        └──────────────── wake() ────────────────▶ set
//
// caller    clear() and sleep_until() belong to the thread that owns the note;
//           wake() may come from any thread, any number of times, and from a
//           signal handler, which says so.
// ordering  wake() releases, sleep_until() acquires when it returns true. So
//           everything written before wake() is visible to the owner, even
//           when it never slept. A false return is the deadline and promises
//           nothing about a waker.
// lifetime  The exchange in wake() is the waker's last touch of the object;
//           the owner may return and destroy the note before the futex call.
//           The address is then only a key, and the wake may reach a stranger:
//           every futex wait of ours re-reads its word in a loop.
#pragma once

#include "core/base/nanos.hpp"
#include "core/base/words.hpp"

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

template <class Words>
class VIGIL_FOR_IO basic_note {
 public:
  // Forgets earlier wakes. The owner then publishes that it is about to sleep,
  // looks once more for reasons not to, and sleeps.
  void clear() noexcept;

  // Sleeps until wake() or the deadline, whichever comes first; true if woken. Takes one
  // system call if nothing disturbs it.
  bool sleep_until(nanos deadline) noexcept;

  // Wakes the owner, and returns whether it slept. Async-signal-safe, if `origin` says
  // so.
  bool wake(waker origin = waker::thread) noexcept;

 private:
  static constexpr std::uint32_t empty = 0;
  static constexpr std::uint32_t sleeping = 1;
  static constexpr std::uint32_t set = 2;

  futex_word word_{empty};
};

extern template class basic_note<kernel_words>;
extern template class basic_note<portable_words>;

class note : public basic_note<words> {};

}  // namespace VIGIL_DETAIL
