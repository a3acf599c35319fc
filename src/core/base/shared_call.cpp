#include <vigil/detail/shared_call.hpp>

#include <atomic>

namespace VIGIL_DETAIL {

// ordering: the caller has a reference already.
void retain(shared_box* box) noexcept {
  std::atomic_ref(box->users).fetch_add(1, std::memory_order_relaxed);
}

void release(shared_box* box) noexcept {
  // Pairs with the other decrements: the last one sees all that was done with the object.
  if (std::atomic_ref(box->users).fetch_sub(1, std::memory_order_acq_rel) == 1) box->destroy(box);
}

}  // namespace VIGIL_DETAIL
