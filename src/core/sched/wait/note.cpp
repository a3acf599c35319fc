#include "core/sched/wait/note.hpp"

#include "core/base/clock_source.hpp"

namespace VIGIL_DETAIL {

template <class Words>
void basic_note<Words>::clear() noexcept {
  // seq_cst: comes before the owner's publication, which comes before its last
  // look; a waker that acts on the publication therefore wakes after this.
  word_.store(empty);
}

template <class Words>
bool basic_note<Words>::sleep_until(nanos deadline) noexcept {
  std::uint32_t seen = empty;
  // Pairs with the exchange in wake(); the acquire is for the case `set`.
  if (!word_.compare_exchange_strong(seen, sleeping)) return true;
  for (;;) {
    Words::wait(word_, sleeping, deadline);
    // Pairs with the exchange in wake().
    if (word_.load(order::acquire) == set) return true;
    if (deadline != never && monotonic_now() >= deadline) {
      seen = sleeping;
      // Leaves `sleeping`, so that a late wake() makes no system call. Pairs
      // with the exchange in wake(), which may have come first.
      return !word_.compare_exchange_strong(seen, empty);
    }
  }
}

template <class Words>
bool basic_note<Words>::wake(waker origin) noexcept {
  // Pairs with the acquires in sleep_until(). The last touch of the object.
  if (word_.exchange(set) != sleeping) return false;
  Words::wake_one(word_, origin);
  return true;
}

template class basic_note<kernel_words>;
template class basic_note<portable_words>;

}  // namespace VIGIL_DETAIL
